"""Joins of two streams whose units store tuples and probe them."""
