"""What a ring costs (PSP, EDBT 2009, section 5): workload, service rate, output, latency, bandwidth, length.

A tuple of stream i finds combinations with tuples before it. Of its P(i, h) partial results before hop h each
meets the tuples held of the hop's target j, and a share s of them joins:

    C(i, h) = P(i, h) * index * held(j)        P(i, h + 1) = P(i, h) * s * held(j)        P(i, 1) = rate(i)

per second of event time, with held(j) = rate(j) * (how long j is kept). Of this work a part is every node's
and a part is divided among N:

    w(N) = A + B / N      A: receive tuples and partial results, probe with them
                          B: store, look at candidates, call predicates, send what was found
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, prod, sqrt

from thetastream.joiner.graph import JoinGraph
from thetastream.plan.cost import BISECTION_S, CANDIDATE_S, SEND_BYTE_S, STORE_S
from thetastream.plan.order import Tie
from thetastream.plan.query import Stream
from thetastream.plan.ring import hops_of
from thetastream.plan.statistics import Statistics
from thetastream.plan.workload import HOUR_S, width

NODE_S = 0.03
"""Of a core, per second: what a node costs by being there, its task and its state's commit in each epoch."""
FULLEST = 0.7
"""Share of its time that a node should be busy at most, so that it catches up after a pause."""
PYTHON_CANDIDATE_S = 1e-6
"""Assumed of a Python predicate."""


@dataclass(frozen=True)
class HopLoad:
    """Steady state of one hop of one origin, per second."""

    probes: float
    candidates: float
    found: float


@dataclass(frozen=True)
class RingLoad:
    """What a ring has to do per second of event time."""

    rate: float
    """Tuples of all streams."""
    held: tuple[float, ...]
    """Tuples kept of each stream."""
    hops: tuple[tuple[HopLoad, ...], ...]
    """Per origin."""
    every_node_s: float
    """A: seconds of work of each node."""
    divided_s: float
    """B: seconds of work that nodes share."""
    sent_bytes: float
    """To one node."""

    @property
    def output_rate(self) -> float:
        """Results per second."""
        return sum(hops[-1].found for hops in self.hops)

    def busy(self, nodes: int) -> float:
        """Share of its time that a node of ``nodes`` works."""
        return self.every_node_s + self.divided_s / nodes

    def service_rate(self, nodes: int) -> float:
        """Tuples per second that saturate the ring."""
        return self.rate / self.busy(nodes) if self.busy(nodes) else inf

    def bandwidth(self, nodes: int) -> float:
        """Bytes per second over the exchange: tuples and partial results to all nodes."""
        return nodes * self.sent_bytes

    def response_latency_s(self, nodes: int, epoch_s: float) -> float:
        """From a tuple's arrival to its last result: half an epoch's wait and an epoch a hop.

        A node that is busy longer than an epoch's time falls behind without bound.
        """
        if self.busy(nodes) >= 1:
            return inf
        n_hops = max(len(hops) for hops in self.hops)
        return epoch_s / 2 + n_hops * max(epoch_s * self.busy(nodes), epoch_s)

    def optimal_length(self, most: int) -> int:
        """Nodes, at most ``most``: enough that none is too busy, more while they save more than they cost.

        N A + B + N NODE_S grows with every node, B / N falls: together least at sqrt(B / (A + NODE_S)).
        """
        best = sqrt(self.divided_s / (self.every_node_s + NODE_S))
        room = FULLEST - self.every_node_s
        needed = self.divided_s / room if room > 0 else most
        return max(1, min(most, ceil(max(round(best), needed))))


def initial_slice(held: float, nodes: int) -> int:
    """Tuples in a slice to begin with: each node holds several slices of a window, so that none is idle.

    >>> initial_slice(held=10_000, nodes=4)
    312
    """
    return max(1, int(held / (8 * nodes)))


def ring_load(
    rates: Sequence[float],
    held: Sequence[float],
    orders: Sequence[Sequence[int]],
    selectivity: Mapping[tuple[frozenset[int], int], float],
    index_share: Mapping[tuple[frozenset[int], int], float],
    candidate_s: Mapping[tuple[frozenset[int], int], float],
    tuple_bytes: Sequence[float],
) -> RingLoad:
    """The steady state of a ring.

    Parameters
    ----------
    rates, held, tuple_bytes : sequences of float
        Per stream: tuples per second, tuples kept, bytes of a tuple as it travels.
    orders : sequence of sequences of int
        Per stream the others, in the order of the hops.
    selectivity, index_share, candidate_s : mappings
        By (members, target) of a hop: share of the held tuples that join, share that the index offers, and
        seconds to look at one.

    Examples
    --------
    Two streams of ten tuples a second, a hundred held, a tenth of them joins, no index:

    >>> one = {(frozenset({0}), 1): 0.1, (frozenset({1}), 0): 0.1}
    >>> scan, fast = dict.fromkeys(one, 1.0), dict.fromkeys(one, 1e-6)
    >>> load = ring_load([10, 10], [100, 100], [(1,), (0,)], one, scan, fast, [8, 8])
    >>> load.output_rate, load.hops[0][0].candidates
    (200.0, 1000.0)
    """
    origins, every, divided, sent = [], 0.0, 0.0, 0.0
    for origin, order in enumerate(orders):
        members, partial, width = frozenset({origin}), rates[origin], tuple_bytes[origin]
        hops = []
        for n, target in enumerate(order):
            key = members, target
            candidates = partial * index_share[key] * held[target]
            found = partial * selectivity[key] * held[target]
            hops.append(HopLoad(partial, candidates, found))
            sent += partial * width
            every += partial * (width * SEND_BYTE_S + BISECTION_S * 20)
            divided += candidates * candidate_s[key]
            width += tuple_bytes[target]
            if n + 1 < len(order):
                divided += found * width * SEND_BYTE_S
            members, partial = members | {target}, found
        divided += rates[origin] * STORE_S
        origins.append(tuple(hops))
    return RingLoad(sum(rates), tuple(held), tuple(origins), every, divided, sent)


def load_of(
    streams: Sequence[Stream],
    graph: JoinGraph,
    orders: Sequence[Sequence[int]],
    ties: Sequence[Tie],
    statistics: Statistics,
) -> RingLoad:
    """The load of a planned query; ``ties`` are its conjuncts' aliases and selectivities."""
    aliases = [stream.alias for stream in streams]
    rates = [statistics.rate_of(alias) for alias in aliases]
    held = []
    for n, rate in enumerate(rates):
        lifetime_us = graph.lifetime_us(n)
        held.append(rate * (HOUR_S if lifetime_us is None else lifetime_us / 1e6))
    keys = {(frozenset(members), target) for members, target in hops_of(orders)}
    selectivity, share, candidate_s = {}, {}, {}
    for members, target in keys:
        known = {aliases[n] for n in (*members, target)}
        selectivity[members, target] = prod(
            part for read, part in ties if aliases[target] in read and read <= known
        )
        edges = [graph.edge(member, target) for member in members]
        is_indexed = any(edge.equalities or edge.dimensions for edge in edges)
        has_python = any(target in p.streams and p.streams <= {*members, target} for p in graph.predicates)
        share[members, target] = selectivity[members, target] if is_indexed and not has_python else 1.0
        candidate_s[members, target] = statistics.seconds_per_candidate or (
            CANDIDATE_S + has_python * PYTHON_CANDIDATE_S
        )
    widths = [
        statistics.nbytes_of(stream.alias) or sum(width(c.block_type) for c in stream.carried)
        for stream in streams
    ]
    return ring_load(rates, held, orders, selectivity, share, candidate_s, widths)


def cost_lines(load: RingLoad, nodes: int, streams: Sequence[Stream], epoch_s: float = 1.0) -> Iterator[str]:
    """What ``explain`` shows of it."""
    for stream, hops in zip(streams, load.hops, strict=True):
        texts = (f"{hop.probes:,.0f} x {hop.candidates / max(hop.probes, 1e-9):,.0f}" for hop in hops)
        yield f"{stream.alias}: probes a second x candidates: {'; '.join(texts)}"
    latency = load.response_latency_s(nodes, epoch_s)
    slow = "falls behind" if latency == inf else f"{latency:.1f} s with epochs of {epoch_s:g} s"
    yield f"results   {load.output_rate:,.0f} a second, {slow} after their last tuple"
    busy, most = load.busy(nodes), load.service_rate(nodes)
    yield f"nodes     {nodes}, each busy {busy:.0%}; {most:,.0f} tuples a second are the most"
    yield f"exchange  {load.bandwidth(nodes):,.0f} bytes a second"
