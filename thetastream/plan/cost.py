"""What a model costs: the papers' closed forms, and an estimate for any model from its own routes.

    W_bi  = |R| + |S|                        W_mat = columns |R| + rows |S|           memory, in tuples
    B_bi  = r (1 + n / e) + s (1 + m / d)    B_mat = columns r + rows s               sent, tuples a second

BiStream (SIGMOD 2015) section 4, with |R|, |S| tuples in the windows, r, s arrivals a second, m and n units
that store R and S in d and e subgroups. SplitJoin (ATC 2016) section 6 for latencies. Each form is derived
where it stands, and tests hold it against what models route.
"""

from dataclasses import dataclass
from math import ceil, log, log2

import numpy as np

from thetastream.models.base import Model
from thetastream.plan.spread import Shares, Spread, spread
from thetastream.plan.workload import Inflow, Workload

# Memory, BiStream section 4


def memory_biclique(left: float, right: float) -> float:
    """W_bi = |R| + |S|: each tuple is stored at one unit of its side, and nowhere else.

    >>> memory_biclique(300, 100)
    400
    """
    return left + right


def memory_per_unit_biclique(left: float, right: float, units: tuple[int, int]) -> tuple[float, float]:
    """(|R| / m, |S| / n): tuples of a side are spread over its units.

    >>> memory_per_unit_biclique(300, 100, (3, 1))
    (100.0, 100.0)
    """
    return left / units[0], right / units[1]


def memory_matrix(left: float, right: float, rows: int, columns: int) -> float:
    """W_mat = columns |R| + rows |S|: copies of R in every column of its row, of S in every row.

    >>> memory_matrix(300, 100, 2, 3)
    1100
    """
    return columns * left + rows * right


def memory_per_unit_matrix(left: float, right: float, rows: int, columns: int) -> float:
    """|R| / rows + |S| / columns: a unit holds the R of its row and the S of its column."""
    return left / rows + right / columns


def capacity_biclique(units: int, per_unit: float) -> float:
    """Largest |R| + |S| that fits: every unit's room holds tuples of its own."""
    return units * per_unit


def capacity_matrix(rows: int, columns: int, per_unit: float, share: float = 0.5) -> float:
    """Largest |R| + |S| that fits, of which ``share`` is R: a unit has share/rows + (1-share)/columns.

    >>> capacity_matrix(2, 2, 100)
    200.0
    """
    return per_unit / (share / rows + (1 - share) / columns)


def scaling_gain_ratio(before: tuple[int, int], after: tuple[int, int], share: float = 0.5) -> float:
    """Room won per unit added, biclique to matrix, as a matrix grows from rows x columns to another.

    A biclique wins a unit's room with every unit; a matrix only what its larger side spreads further:
    from a square of k units to the next about 1 / (2 sqrt k) of it, so the ratio is about 2 sqrt k.

    >>> scaling_gain_ratio((2, 2), (3, 3))
    5.0
    """
    added = after[0] * after[1] - before[0] * before[1]
    return added / (capacity_matrix(*after, 1.0, share) - capacity_matrix(*before, 1.0, share))


# Bandwidth, BiStream section 4


def bandwidth_biclique(
    left: float, right: float, units: tuple[int, int], subgroups: tuple[int, int] = (1, 1)
) -> float:
    """B_bi = r (1 + n / e) + s (1 + m / d): stored once, and probing one subgroup of the other side.

    One subgroup is random routing: all opposite units.

    >>> bandwidth_biclique(10, 10, (2, 4)), bandwidth_biclique(10, 10, (2, 4), subgroups=(2, 2))
    (80.0, 50.0)
    """
    (m, n), (d, e) = units, subgroups
    return left * (1 + n / e) + right * (1 + m / d)


def bandwidth_matrix(left: float, right: float, rows: int, columns: int) -> float:
    """B_mat = columns r + rows s: to each unit of a row, of a column; a copy is stored and probes."""
    return columns * left + rows * right


def bandwidth_split(left: float, right: float, cores: int) -> float:
    """k (r + s): every tuple to every core. SplitJoin (ATC 2016) section 4."""
    return cores * (left + right)


# Latency, SplitJoin section 6


def processing_latency(
    opposite: float, cores: int, per_comparison_s: float, is_indexed: bool = False
) -> float:
    """Seconds until a core is done with a tuple: it looks at its k-th of the opposite window.

    A nested loop makes |S| / k comparisons, an index log2(|S| / k), besides the matches themselves.

    >>> processing_latency(1000, 4, 0.001)
    0.25
    """
    mine = opposite / cores
    return per_comparison_s * (log2(max(mine, 1.0)) if is_indexed else mine)


def visiting_latency(cores: int, per_hop_s: float, fan_out: int = 2) -> float:
    """Seconds until a tuple has been to every core and its results are gathered, processing aside.

    A tree of that fan-out distributes in ceil(log_f k) hops, and a tree gathers, by punctuation, in as
    many. Handshake join hands a tuple from core to core: k hops. Here both trees are one Spark exchange.

    >>> visiting_latency(16, 0.001), visiting_latency_chain(16, 0.001)
    (0.008, 0.016)
    """
    hops = ceil(log(cores, fan_out) - 1e-9) if cores > 1 else 0
    return 2 * hops * per_hop_s


def visiting_latency_chain(cores: int, per_hop_s: float) -> float:
    """k hops: R flows past all cores from one end, S from the other (handshake join, SIGMOD 2011)."""
    return cores * per_hop_s


# Any model, from its routes

STORE_S, STORE_BYTE_S = 0.25e-6, 10e-9
"""To order and lay out a stored tuple; to write a byte of it, merges included."""
SEND_BYTE_S = 5e-9
"""To pack and write a byte of a block; as much again to read it."""
BISECTION_S, CANDIDATE_S = 5e-9, 20e-9
"""A step of a search; a look at a stored tuple. Measured on 2 cores (docs/choosing-a-model.md); what
counts is how they compare."""
BYTES_PER_CORE = 4 * 2**30
"""Memory that a machine brings with each core."""
HISTORY_HOURS = 24.0
"""What never expires is weighed as it will be after a day."""


@dataclass(frozen=True)
class Estimate:
    """What one model costs for one workload."""

    model: Model
    memory_bytes: float
    """In the window, copies included; what grows is left out."""
    growth_bytes: float
    """Per hour, of streams that are kept for ever."""
    mlv_bytes: float
    """Memory load volume of the most loaded unit."""
    mlv_growth_bytes: float
    sends: tuple[float, float]
    """Copies of a left and of a right tuple that cross the exchange."""
    sent_per_s: float
    sent_bytes_per_s: float
    comparisons: tuple[float, float]
    """Of a left and of a right tuple: bisections, and candidates where they are known."""
    cost: float
    """In cores; see ``estimate``."""


def estimate(model: Model, work: Workload, partitions: int) -> Estimate:
    """What a model costs.

        cost = partitions * (work of the busiest partition) + packing + bytes of replicas / (4 GiB)

    in cores. An epoch ends with its last task, so all partitions are held as long as the busiest one works:
    what its units receive, store, search and look at. A machine brings about 4 GiB with a core, so memory
    counts as the cores it takes with it; only replicas do, as every model holds each tuple once. Cores
    and memory are what a cluster is paid for, and neither alone would do: by CPU alone large matrices win
    and hold every tuple many times, by bytes alone a single unit wins and does not scale.

    Parameters
    ----------
    model : Model
        The router; nothing but its routes is asked for.
    work : Workload
        Streams and condition.
    partitions : int
        Tasks that units are spread over.
    """
    is_ranged = work.is_ranged(model)
    even, one_key = spread(model, False, is_ranged), spread(model, True, is_ranged)
    skew = work.heaviest_key
    spreads = (_mixed(even[0], one_key[0], skew), _mixed(even[1], one_key[1], skew))
    left, right = work.inflows
    bounded, growing = (_memory(spreads, work, is_bounded) for is_bounded in (True, False))
    held = bounded + growing * HISTORY_HOURS
    sends = spreads[0].sends, spreads[1].sends
    sent_bytes = sends[0] * left.rate * left.sent_bytes + sends[1] * right.rate * right.sent_bytes
    searches = [_search(spreads[1 - n], work.inflows[1 - n], work) for n in range(2)]
    load = _load(spreads, work, searches)
    tasks = np.array([load[partition::partitions].sum() for partition in range(partitions)])
    packing = sent_bytes * SEND_BYTE_S
    once = sum(flow.held(HISTORY_HOURS) * flow.stored_bytes for flow in work.inflows)
    replicas = max(0.0, float(held.sum()) - once)
    return Estimate(
        model=model,
        memory_bytes=float(bounded.sum()),
        growth_bytes=float(growing.sum()),
        mlv_bytes=float(bounded[np.argmax(held)]),
        mlv_growth_bytes=float(growing[np.argmax(held)]),
        sends=sends,
        sent_per_s=sends[0] * left.rate + sends[1] * right.rate,
        sent_bytes_per_s=sent_bytes,
        comparisons=(_compared(spreads[0], searches[0], work), _compared(spreads[1], searches[1], work)),
        cost=partitions * float(tasks.max()) + packing + replicas / BYTES_PER_CORE,
    )


def _mixed(even: Spread, one_key: Spread, skew: float) -> Spread:
    """Shares if ``skew`` of the tuples have one key and the others one each."""
    return Spread(*((1 - skew) * mine + skew * worst for mine, worst in zip(even, one_key, strict=True)))


def _memory(spreads: tuple[Spread, Spread], work: Workload, is_bounded: bool) -> Shares:
    """Bytes per unit of streams whose tuples expire, or the growth in an hour of those that stay."""
    flows = zip(spreads, work.inflows, strict=True)
    kept = [
        mine.stored * flow.held() * flow.stored_bytes
        for mine, flow in flows
        if (flow.span_s is not None) is is_bounded
    ]
    return np.sum(kept, axis=0) if kept else np.zeros(len(spreads[0].stored))


def _search(other: Spread, flow: Inflow, work: Workload) -> Shares:
    """Per unit, the comparisons that one probe makes among its stored tuples before any candidate."""
    n = other.stored * flow.held()
    if work.index == "scan":
        return n
    steps = flow.n_segments * np.log2(np.maximum(n / flow.n_segments, 1.0))
    return np.asarray(steps)


def _compared(mine: Spread, search: Shares, work: Workload) -> float:
    known = 0.0 if work.candidates is None or work.index == "scan" else work.candidates
    return float((mine.probing * search).sum()) + known


def _load(spreads: tuple[Spread, Spread], work: Workload, searches: list[Shares]) -> Shares:
    """Seconds of work per unit and second: receive, store, search, look at candidates."""
    step = CANDIDATE_S if work.index == "scan" else BISECTION_S
    load = np.zeros(len(spreads[0].stored))
    for mine, flow, search in zip(spreads, work.inflows, searches, strict=True):
        load += flow.rate * mine.received * flow.sent_bytes * SEND_BYTE_S
        load += flow.rate * mine.stored * (STORE_S + flow.stored_bytes * STORE_BYTE_S)
        load += flow.rate * mine.probing * search * step
    if work.candidates is not None and work.index != "scan":
        met = spreads[0].probing * spreads[1].stored + spreads[1].probing * spreads[0].stored
        rate = work.inflows[0].rate + work.inflows[1].rate
        load += rate * work.candidates * CANDIDATE_S * met / met.sum()
    return load
