"""Benchmarks: the same join, the same files, several engines, one machine.

``python -m bench handshake|equi|stock|inequality``, ``tpch-band`` and ``figures``.
"""
