"""The store of a unit: runs, segments, and the chained index over them."""
