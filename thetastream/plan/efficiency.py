"""Processing efficiency: which share of a join's comparisons gives results (ESJ's rho).

    rho = m / comparisons            of one probe against the other stream's window of W tuples

    nested loop     W comparisons                         rho = m / W = s, whatever W is
    sorted          log2(W) to find the range, c in it    rho = m / (log2(W) + c)
    hash            the bucket, W / d tuples              rho = m / (W / d)
    hash, sorted    the same in one sorted bucket         rho = m / (log2(W / d) + c)

with m = s W matches, s the selectivity (the share of pairs that match), c the tuples of the range and d the
number of different keys. These are the shapes of ESJ's theorems; a range that is the whole condition has
c = m. No index can have rho > 1.
"""

from math import log2


def matches(selectivity: float, window: float) -> float:
    """m = s W: partners of one probe.

    >>> matches(2**-12, 2**14)
    4.0
    """
    return selectivity * window


def brute_force(selectivity: float) -> float:
    """rho = s: all W are looked at, s W match. A tuple costs W comparisons, so throughput falls as 1 / W.

    >>> brute_force(2**-12) == matches(2**-12, 2**14) / 2**14
    True
    """
    return selectivity


def by_range(found: float, window: float, in_range: float | None = None) -> float:
    """rho = m / (log2(W) + c): a bisection of W tuples, then the c of the range, which are the m matches
    when nothing else is asked of them.

    >>> by_range(found=4, window=2**12)
    0.25
    >>> by_range(found=4, window=2**12, in_range=20)
    0.125
    """
    return found / (log2(max(window, 1.0)) + (found if in_range is None else in_range))


def by_hash(found: float, bucket: float) -> float:
    """rho = m / bucket: all W / d tuples of the probe's bucket are looked at.

    >>> by_hash(found=4, bucket=2**14 / 16)
    0.00390625
    """
    return found / bucket
