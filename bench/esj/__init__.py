"""ESJ's experiments, drawn again: ``python -m bench esj``.

Efficiency of indexes, blocks and loads of the handshake chain are measured in one process (``replay``),
response times in Spark (``streamed``).
"""
