"""Figures of BiStream (SIGMOD 2015) and SplitJoin (ATC 2016), drawn again: ``python -m bench figures``.

One file per family of figures, each a ``Figure``: the claim, a measurement that returns rows, panels over
the rows, a verdict. Adding one is a line in ``registry.FIGURES``.

Memory, bandwidth and load are properties of routers and units, so they are counted in one process
(``replay``). Throughput and latency are those of whole queries in Spark (``timing``).
"""
