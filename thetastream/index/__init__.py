"""Index shapes: how a run of tuples is ordered and found again."""
