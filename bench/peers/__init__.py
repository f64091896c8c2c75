"""Other engines. Each module here is a program of its own, for the Python of ``.venv-peers``.

``python -m bench.peers.ENGINE GIVEN OUTPUT`` reads what to join as JSON, which ``bench/core/engines/peer.py``
writes, and writes its figures as JSON. The modules import nothing of the other benchmarks.
"""
