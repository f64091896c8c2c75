"""Reads, checks and runs job files, which describe a streaming join: sources, SQL, sink, checkpoint."""
