"""The papers' closed forms of memory, bandwidth and latency, with which tests compare the models' routes.

    W_bi  = |R| + |S|                        W_mat = columns |R| + rows |S|           memory, in tuples
    B_bi  = r (1 + n / e) + s (1 + m / d)    B_mat = columns r + rows s               sent, tuples a second

The forms are those of BiStream (SIGMOD 2015) section 4. |R| and |S| are the tuples in the windows, r and s
are the arrivals per second, and m and n are the units that store R and S in d and e subgroups. Latencies
follow SplitJoin (ATC 2016) section 6, and the block of a handshake chain follows ESJ. The docstring of each
function derives its form.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log, sqrt

# Memory, BiStream section 4


def memory_biclique(left: float, right: float) -> float:
    """Return W_bi = |R| + |S|: each tuple is stored at exactly one unit of its side.

    >>> memory_biclique(300, 100)
    400
    """
    return left + right


def memory_per_unit_biclique(left: float, right: float, units: tuple[int, int]) -> tuple[float, float]:
    """Return (|R| / m, |S| / n): the tuples of a side are spread evenly over its units.

    >>> memory_per_unit_biclique(300, 100, (3, 1))
    (100.0, 100.0)
    """
    return left / units[0], right / units[1]


def memory_matrix(left: float, right: float, rows: int, columns: int) -> float:
    """Return W_mat = columns |R| + rows |S|.

    A tuple of R is copied to every column of its row, and a tuple of S to every row of its column.

    >>> memory_matrix(300, 100, 2, 3)
    1100
    """
    return columns * left + rows * right


def memory_per_unit_matrix(left: float, right: float, rows: int, columns: int) -> float:
    """Return |R| / rows + |S| / columns: a unit stores the R of its row and the S of its column."""
    return left / rows + right / columns


def capacity_biclique(units: int, per_unit: float) -> float:
    """Return the largest |R| + |S| that fits into memory. No tuple is stored twice."""
    return units * per_unit


def capacity_matrix(rows: int, columns: int, per_unit: float, share: float = 0.5) -> float:
    """Return the largest |R| + |S| that fits into memory if ``share`` of the tuples are in R.

    A unit stores share / rows + (1 - share) / columns of them.

    >>> capacity_matrix(2, 2, 100)
    200.0
    """
    return per_unit / (share / rows + (1 - share) / columns)


def scaling_gain_ratio_matrix(opposite: float, partitions: int, per_unit: float) -> float:
    """Return SGR = 1 - (|S| / n) / C, the share of the memory of a new unit that new tuples can use.

    A new row of a matrix stores tuples of R, and also copies of S, of which each of the n columns has a part.
    The formula is that of equations 3 and 4, for a new row and for a new column. A new unit of a biclique
    has no copies, so that its ratio is 1. ``opposite`` is |S|, and ``per_unit`` is C, in the same measure.

    >>> scaling_gain_ratio_matrix(300, partitions=3, per_unit=200)
    0.5
    """
    return 1 - opposite / partitions / per_unit


# Bandwidth, BiStream section 4


def bandwidth_biclique(
    left: float, right: float, units: tuple[int, int], subgroups: tuple[int, int] = (1, 1)
) -> float:
    """Return B_bi = r (1 + n / e) + s (1 + m / d).

    A tuple is stored once and probes one subgroup of the other side. With one subgroup (random routing), it
    probes all units of the other side.

    >>> bandwidth_biclique(10, 10, (2, 4)), bandwidth_biclique(10, 10, (2, 4), subgroups=(2, 2))
    (80.0, 50.0)
    """
    (m, n), (d, e) = units, subgroups
    return left * (1 + n / e) + right * (1 + m / d)


def bandwidth_matrix(left: float, right: float, rows: int, columns: int) -> float:
    """Return B_mat = columns r + rows s.

    A tuple of R goes to each unit of its row, a tuple of S to each unit of its column. Each copy is stored
    and probes.
    """
    return columns * left + rows * right


def bandwidth_split(left: float, right: float, cores: int) -> float:
    """Return k (r + s): every tuple goes to every core. SplitJoin (ATC 2016) section 4."""
    return cores * (left + right)


# Latency, SplitJoin section 6


@dataclass(frozen=True)
class Latency:
    """The terms of a latency, in seconds.

    A chain is a handshake join with fast forwarding. In Thetastream, one Spark exchange takes the place of
    both trees and of the hops of a chain.
    """

    distribution_s: float
    """Until the tuple has reached the cores."""
    comparison_s: float
    """Until a core has compared the tuple with its part of the other window."""
    collection_s: float = 0.0
    """Until the results have left the network that gathers them."""

    @property
    def total_s(self) -> float:
        """The sum of the terms."""
        return self.distribution_s + self.comparison_s + self.collection_s


def processing_latency_split(
    cores: int, compared: float, hop_s: float, comparison_s: float, fan_out: int = 2, fan_in: int = 2
) -> Latency:
    """Return the terms of PL = T_CL log_b k + w T_P + T_CL log_c k, equation 5.

    A tree with this fan-out brings a tuple to k cores. Each core compares it with w tuples (``compared``),
    its part of the other window. A tree with this fan-in gathers the results.

    >>> processing_latency_split(16, compared=1000, hop_s=0.25, comparison_s=0.001)
    Latency(distribution_s=1.0, comparison_s=1.0, collection_s=1.0)
    """
    to_cores, from_cores = (hop_s * _count_levels(cores, width) for width in (fan_out, fan_in))
    return Latency(to_cores, compared * comparison_s, from_cores)


def processing_latency_unequal(
    path_s: Sequence[float], compared: float, comparison_s: Sequence[float], collect_s: float = 0.0
) -> float:
    """Return PL = max over cores i of (path i + w T_P i) + T_Col, equations 3 and 4.

    Cores differ in the seconds of their path from the root of the tree, and in those of a comparison. For
    equal cores it is equation 5.

    >>> processing_latency_unequal([1.0, 1.0, 2.0], 1000, [0.001, 0.003, 0.001], collect_s=1.0)
    5.0
    """
    return max(path + compared * each for path, each in zip(path_s, comparison_s, strict=True)) + collect_s


def visiting_latency_split(
    cores: int, compared: float, hop_s: float, comparison_s: float, fan_out: int = 2
) -> Latency:
    """Return the terms of VL = T_CL log_b k + w / 2 T_P, equation 6: the mean time until two tuples meet.

    >>> visiting_latency_split(16, compared=1000, hop_s=0.25, comparison_s=0.001)
    Latency(distribution_s=1.0, comparison_s=0.5, collection_s=0.0)
    """
    return Latency(hop_s * _count_levels(cores, fan_out), compared / 2 * comparison_s)


def processing_latency_chain(
    cores: int,
    compared: float,
    hop_s: float,
    comparison_s: float,
    watch_s: float = 0.0,
    collect_s: float = 0.0,
) -> Latency:
    """Return the terms of PL = T_CL + (k - 1) (T_CL + T_ML) + w T_P + T_Col, equation 1.

    Each of k cores hands the tuple on to the next one. T_ML (``watch_s``) is the time in which it watches the
    other stream, so that no pair is missed on the way.

    >>> processing_latency_chain(16, compared=1000, hop_s=0.25, comparison_s=0.001)
    Latency(distribution_s=4.0, comparison_s=1.0, collection_s=0.0)
    """
    return Latency(hop_s + (cores - 1) * (hop_s + watch_s), compared * comparison_s, collect_s)


def visiting_latency_chain(
    cores: int, compared: float, hop_s: float, comparison_s: float, watch_s: float = 0.0
) -> Latency:
    """Return the terms of VL = T_CL + (k - 1) / 2 (T_CL + T_ML) + w / 2 T_P, equation 2.

    >>> visiting_latency_chain(17, compared=1000, hop_s=0.25, comparison_s=0.001)
    Latency(distribution_s=2.25, comparison_s=0.5, collection_s=0.0)
    """
    return Latency(hop_s + (cores - 1) / 2 * (hop_s + watch_s), compared / 2 * comparison_s)


def _count_levels(cores: int, width: int) -> int:
    return ceil(log(cores, width) - 1e-9) if cores > 1 else 0


# Block of a handshake chain, ESJ, section on message passing


def weigh_block(block: float, stored: float, workers: int, per_message: float, weight: float = 0.5) -> float:
    """Return J = alpha C_ser w / b + (1 - alpha) b m / w, the target function of the block size.

    w tuples are ``stored`` (rate times window) at m workers, which forward them in blocks of b tuples. A
    message costs C_ser (``per_message``), so the first term is the cost of all messages. The loads of workers
    differ by at most a block, so the second term is the imbalance. ``weight`` is alpha, between 0 and 1. The
    cost of the bytes is left out, because no block changes it.

    >>> weigh_block(500, 2000, workers=4, per_message=1.0)
    2.5
    """
    messages, imbalance = per_message * stored / block, block * workers / stored
    return weight * messages + (1 - weight) * imbalance


def find_best_block(stored: float, workers: int, per_message: float, weight: float = 0.5) -> float:
    """Return w sqrt(alpha / (1 - alpha) C_ser / m), the block where J is least: its derivative is 0 there.

    A chain minimises J with measured seconds for both terms (``BlockCost``), so that it needs no weight.

    >>> find_best_block(2000, workers=4, per_message=1.0)
    1000.0
    """
    return stored * sqrt(weight / (1 - weight) * per_message / workers)
