"""A streaming join as a file: sources, SQL, sink, checkpoint; read, checked, run."""
