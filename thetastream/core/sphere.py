"""The Earth as a sphere: its radius, and the distance of two points in SQL.

A point is an array of the three coordinates of a unit vector. With the length c of the straight line between
two of them, the distance is 2 R arcsin(c / 2). Java computes the arcsine by one algorithm on all machines.
"""

RADIUS_M = 6_371_008.8
"""The mean radius of the Earth (IUGG)."""
DIAMETER_M = 12_742_017.6
METRES = (
    "aggregate(zip_with(left, right, (x, y) -> (x - y) * (x - y)), 0D, (s, x) -> s + x, "
    f"s -> {DIAMETER_M}D * asin(IF(s > 4D, 1D, sqrt(s) / 2D)))"
)
"""The distance of the points ``left`` and ``right``, in metres."""
