"""The Numba kernels of indexes and routers. They take and return plain arrays.

    compiling   how kernels are compiled
    keys        looking keys up, sorting rows inside buckets, counting equal keys
    walk        the walk of all indexes
    tiles       vectors, masks of bits and texts
    sets        sets by the elements that they share
    points      points on a sphere

A kernel calls only kernels of its own file. Numba keeps machine code on the disk, and makes it again if the
file of a kernel has changed. It does not look at the files of the kernels that a kernel calls, so code of
another file would be that of an earlier version (``tests/unit/kernels/test_kernels.py`` holds this rule).
"""
