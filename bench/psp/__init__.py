"""The experiment of PSP (EDBT 2009), drawn again: ``python -m bench psp``.

Joins of three to seven streams of images by a pixel difference, on the ring and on what it was compared
with, aligned and coordinated tuple routing. State, visits and epochs are counted in one process
(``replay``); response times in milliseconds are also those of whole queries in Spark (``streamed``).
"""
