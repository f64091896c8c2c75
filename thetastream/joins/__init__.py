"""The functions of ``thetastream`` that join streams, keep results in a store, and read them again."""
