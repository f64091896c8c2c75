"""The engine of the handshake chain: a worker joins tuples that pass each other."""
