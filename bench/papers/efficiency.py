"""Processing efficiency: the share of a join's comparisons that give results (rho in ESJ).

    rho = m / comparisons            for one probe of the other stream's window of W tuples

    nested loop     W comparisons                         rho = m / W = s, whatever W is
    sorted          log2(W) to find the range, c in it    rho = m / (log2(W) + c)
    hash            the bucket, W / d tuples              rho = m / (W / d)
    hash, sorted    the same in one sorted bucket         rho = m / (log2(W / d) + c)

m = s W is the number of matches, s the selectivity (the share of pairs that match), c the number of tuples in
the range, and d the number of different keys. The formulas follow ESJ's theorems. If the range is the whole
condition, then c = m. No index can have rho > 1.
"""

from math import log2


def matches(selectivity: float, window: float) -> float:
    """Return m = s W, the number of matches of one probe.

    >>> matches(2**-12, 2**14)
    4.0
    """
    return selectivity * window


def brute_force(selectivity: float) -> float:
    """Return rho = s: a probe compares all W tuples, and s W of them match.

    A tuple costs W comparisons, so throughput falls as 1 / W.

    >>> brute_force(2**-12) == matches(2**-12, 2**14) / 2**14
    True
    """
    return selectivity


def by_range(found: float, window: float, in_range: float | None = None) -> float:
    """Return rho = m / (log2(W) + c): a bisection of W tuples, then a comparison per tuple of the range.

    If ``in_range`` is None, the range is the whole condition, so c = m.

    >>> by_range(found=4, window=2**12)
    0.25
    >>> by_range(found=4, window=2**12, in_range=20)
    0.125
    """
    return found / (log2(max(window, 1.0)) + (found if in_range is None else in_range))


def by_hash(found: float, bucket: float) -> float:
    """Return rho = m / bucket: a probe compares all W / d tuples of its bucket.

    >>> by_hash(found=4, bucket=2**14 / 16)
    0.00390625
    """
    return found / bucket
