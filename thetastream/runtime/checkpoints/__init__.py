"""The logs and the paths of Spark's checkpoints."""
