"""The cost of a model: an estimate from its routes, which serves any model.

``bench.papers.closed_forms`` has the forms of the papers for memory, bandwidth and latency.

Computes the shares of a stream's tuples that each unit of a model receives, stores and probes with.

share(u) = tuples that unit u receives, stores, probes with / all tuples of the stream

The shares are counted from the routes that the model returns for evenly distributed hashes. This module knows
no model by name, so it computes the shares of a new model without a change.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thetastream.core.sides import Role, Side
from thetastream.engine.two_stream.content_routing import CELL_BANDS
from thetastream.families.pairs.workload import Inflow, Workload
from thetastream.models.base import Hashes, Model, Places

STORE_BYTE_S = 10e-9
"""Seconds to write one byte of a stored tuple, merges included. ``ProbeCost.insert_s`` is the cost of its
index."""
SEND_BYTE_S = 5e-9
"""Seconds to pack and write one byte of a block. Reading a byte costs as much."""
SECOND_ROW_S = 1.5e-6
"""Seconds to bring one row out of a unit and into the router of the second exchange. Spark needs 0.77
microseconds to bring a row out (docs/internals/profiles.md), and bringing it in is assumed to take as
long."""
BYTES_PER_CORE = 4 * 2**30
"""Memory of a machine per core."""
HISTORY_HOURS = 24.0
"""For a stream without a window, costs are estimated for one day."""


@dataclass(frozen=True)
class Estimate:
    """The estimated cost of one model for one workload."""

    model: Model
    memory_bytes: float
    """Bytes of all tuples in windows, copies included. Streams without a window are not counted."""
    growth_bytes: float
    """Growth per hour in bytes of the streams without a window."""
    mlv_bytes: float
    """Memory load volume of the most loaded unit in bytes. Streams without a window are not counted."""
    mlv_growth_bytes: float
    """Growth of the most loaded unit per hour, in bytes."""
    sends: tuple[float, float]
    """Number of copies of a left and of a right tuple that cross the exchange."""
    sent_per_s: float
    sent_bytes_per_s: float
    second_bytes_per_s: float
    """Bytes that cross the second exchange, apart from candidate pairs if their number is not known."""
    comparisons: tuple[float, float]
    """Comparisons per left and per right tuple: bisections, and candidates if their number is known."""
    cost: float
    """The cost in cores, as ``estimate`` defines it."""


def estimate(model: Model, work: Workload, partitions: int) -> Estimate:
    """Estimate the cost of a model.

        cost = partitions * (work of the busiest partition) + packing + bytes of replicas / (4 GiB)

    in cores. An epoch ends with its last Spark task, so all partitions are occupied until the busiest one is
    done. Its work is what its units receive, store, search, compare, and hand to second units. A machine has
    about 4 GiB per core, so memory is converted to cores at this rate. Only replicas count, because every
    model stores each tuple at least once. Users pay for both the cores and the memory of a cluster. If only
    CPU counted, large matrices, which store every tuple many times, would be the cheapest. If only bytes
    counted, a single unit, which does not scale, would be the cheapest.

    Parameters
    ----------
    model : Model
        The model. Only its routes are used.
    work : Workload
        The streams and the condition.
    partitions : int
        Number of shuffle partitions over which the units are spread.
    """
    shares = _compute_mixed_shares(model, work)
    left, right = work.inflows
    bounded, growing = (_estimate_memory(shares, work, is_bounded) for is_bounded in (True, False))
    held = bounded + growing * HISTORY_HOURS
    sends = shares[0].sends, shares[1].sends
    sent_bytes = sends[0] * left.rate * left.sent_bytes + sends[1] * right.rate * right.sent_bytes
    searches = _estimate_searches(shares, work)
    load = _estimate_load(shares, work, searches)
    second_rows = float(_count_second_rows(shares, work, searches).sum())
    partition_loads = np.array([load[partition::partitions].sum() for partition in range(partitions)])
    packing = sent_bytes * SEND_BYTE_S
    once = sum(flow.estimate_held(HISTORY_HOURS) * flow.stored_bytes for flow in work.inflows)
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
        second_bytes_per_s=0.0 if work.second is None else second_rows * work.second.row_bytes,
        comparisons=(
            _count_comparisons(shares[0], searches[0], work),
            _count_comparisons(shares[1], searches[1], work),
        ),
        cost=partitions * float(partition_loads.max()) + packing + replicas / BYTES_PER_CORE,
    )


PerUnit = npt.NDArray[np.float64]
"""One share per unit."""


def estimate_unit_work(model: Model, work: Workload) -> PerUnit:
    """Estimate the seconds of work per second of each unit: receive, store, search, compare candidates."""
    shares = _compute_mixed_shares(model, work)
    return _estimate_load(shares, work, _estimate_searches(shares, work))


class StreamShares(NamedTuple):
    """The shares of one stream's tuples that each unit of a model receives, stores and probes with."""

    received: PerUnit
    """Copies that cross the exchange. One copy may both be stored and probe."""
    stored: PerUnit
    probing: PerUnit

    @property
    def sends(self) -> float:
        """Number of copies of a tuple that cross the exchange."""
        return float(self.received.sum())

    @property
    def copies(self) -> float:
        """Number of copies of a tuple that are stored."""
        return float(self.stored.sum())

    @property
    def probes(self) -> float:
        """Number of units at which a tuple looks for partners."""
        return float(self.probing.sum())


def _compute_mixed_shares(model: Model, work: Workload) -> tuple[StreamShares, StreamShares]:
    """Compute the shares of both streams, the heaviest key included."""
    is_ranged = work.is_ranged(model)
    even, one_key = compute_shares(model, False, is_ranged), compute_shares(model, True, is_ranged)
    skew = work.heaviest_key
    return _mix(even[0], one_key[0], skew), _mix(even[1], one_key[1], skew)


def _estimate_searches(shares: tuple[StreamShares, StreamShares], work: Workload) -> list[PerUnit]:
    return [_estimate_search(shares[1 - n], work.inflows[1 - n], work) for n in range(2)]


def _mix(even: StreamShares, one_key: StreamShares, skew: float) -> StreamShares:
    """Mix the shares for tuples of which a part ``skew`` have one key and the others have different keys."""
    return StreamShares(
        *((1 - skew) * mine + skew * worst for mine, worst in zip(even, one_key, strict=True))
    )


def _estimate_memory(shares: tuple[StreamShares, StreamShares], work: Workload, is_bounded: bool) -> PerUnit:
    """Estimate the bytes per unit of streams with a window, or the growth per hour of those without one."""
    flows = zip(shares, work.inflows, strict=True)
    kept = [
        mine.stored * flow.estimate_held() * flow.stored_bytes
        for mine, flow in flows
        if (flow.span_s is not None) is is_bounded
    ]
    return np.sum(kept, axis=0) if kept else np.zeros(len(shares[0].stored))


def _estimate_search(other: StreamShares, flow: Inflow, work: Workload) -> PerUnit:
    """Estimate, for each unit, the comparisons of one probe before it looks at candidates."""
    n = other.stored * flow.estimate_held()
    return work.index.steps(n, flow.n_segments)


def _count_comparisons(mine: StreamShares, search: PerUnit, work: Workload) -> float:
    known = 0.0 if work.candidates is None or work.index.cost.looks_at_all else work.candidates
    return float((mine.probing * search).sum()) + known


def _estimate_load(
    shares: tuple[StreamShares, StreamShares], work: Workload, searches: list[PerUnit]
) -> PerUnit:
    """Estimate the seconds of work per second of each unit: receive, store, search, compare candidates, and
    hand rows to a second unit."""
    load = np.zeros(len(shares[0].stored))
    for mine, flow, search in zip(shares, work.inflows, searches, strict=True):
        load += flow.rate * mine.received * flow.sent_bytes * SEND_BYTE_S
        load += flow.rate * mine.stored * (work.index.cost.insert_s + flow.stored_bytes * STORE_BYTE_S)
        load += flow.rate * mine.probing * search * work.step_s
    if work.candidates is not None and not work.index.cost.looks_at_all:
        load += _count_candidates(shares, work) * work.candidate_s
    if work.second is not None:
        rows = _count_second_rows(shares, work, searches)
        load += rows * (SECOND_ROW_S + 2 * work.second.row_bytes * SEND_BYTE_S)
    return load


def _count_candidates(shares: tuple[StreamShares, StreamShares], work: Workload) -> PerUnit:
    """Count the candidates per second at each unit, if their number is known."""
    met = shares[0].probing * shares[1].stored + shares[1].probing * shares[0].stored
    rate = work.inflows[0].rate + work.inflows[1].rate
    found: PerUnit = rate * (work.candidates or 0.0) * met / met.sum()
    return found


def _count_second_rows(
    shares: tuple[StreamShares, StreamShares], work: Workload, searches: list[PerUnit]
) -> PerUnit:
    """Count the rows per second that each unit hands to a second unit: preserved tuples and pairs.

    Without an index, each tuple that a probe looks at is a pair.
    """
    rows = np.zeros(len(shares[0].stored))
    if work.second is None:
        return rows
    for side in work.second.preserved:
        rows += work.inflows[side].rate * shares[side].stored
    if not work.index.cost.looks_at_all:
        return rows + _count_candidates(shares, work)
    for mine, flow, search in zip(shares, work.inflows, searches, strict=True):
        rows += flow.rate * mine.probing * search
    return rows


_N = 5_040
"""Number of sample tuples. It is divisible by all numbers up to 10 and by 12, 14, 15, 16, 18 and 20."""
_GOLDEN = (1 + 5**0.5) / 2


def compute_shares(
    model: Model, has_one_key: bool = False, is_ranged: bool = False
) -> tuple[StreamShares, StreamShares]:
    """Compute the shares of left and of right tuples of each unit.

    Parameters
    ----------
    model : Model
        The model. Only its routes are used.
    has_one_key : bool
        Whether all tuples have the same key, which is the worst case of skew.
    is_ranged : bool
        Whether keys are cells of a band. One of ``CELL_BANDS`` probes then reaches into a second cell.

    Examples
    --------
    >>> from thetastream.models import Biclique
    >>> left, right = compute_shares(Biclique((1, 2)))
    >>> left.sends, right.sends, right.stored.tolist()
    (3.0, 2.0, [0.0, 0.5, 0.5])
    """
    # n and floor(n * golden ratio) are evenly distributed together: all combinations of remainders occur.
    numbers = np.arange(_N, dtype=np.int64)
    tuples = np.floor(numbers * _GOLDEN).astype(np.int64)
    keys = np.zeros_like(numbers) if has_one_key else numbers
    reach = keys + (tuples % CELL_BANDS == 0) if is_ranged else keys
    hashes = Hashes(lambda: tuples, lambda: Places(keys, keys, reach))
    left, right = (_count_shares(model, side, hashes, numbers) for side in Side)
    return left, right


def _count_shares(model: Model, side: Side, hashes: Hashes, numbers: npt.NDArray[np.int64]) -> StreamShares:
    # A unit that receives every tuple decides by its number in the stream whether to store it.
    keeps = model.keeps if model.sees_all else None
    counts = np.zeros((3, model.n_units))
    received, stored, probing = counts
    for unit, role, rows in model.route(side, _N, hashes):
        n_rows = _N if rows is None else len(rows)
        received[unit] += n_rows
        if Role.PROBE in role.parts:
            probing[unit] += n_rows
        if Role.STORE in role.parts:
            stored[unit] += n_rows if keeps is None else int(keeps(unit, numbers, numbers).sum())
    return StreamShares(*(counts / _N))
