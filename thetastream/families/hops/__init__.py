"""Joins of two or more streams, hop by hop, on a ring of nodes."""
