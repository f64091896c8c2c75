"""The cost of a multiway join: load, service rate, output, latency, bandwidth and number of nodes.

The formulas follow PSP (EDBT 2009), section 5.

A tuple of stream i is combined with earlier tuples. P(i, h) is the rate of its partial results before hop h.
Each of them meets the stored tuples of the hop's target j, and a share s of these pairs matches:

    C(i, h) = P(i, h) * index * held(j)        P(i, h + 1) = P(i, h) * s * held(j)        P(i, 1) = rate(i)

per second of event time, with held(j) = rate(j) * (how long j is kept). Every node does one part of this
work, and the other part is divided among N nodes:

    w(N) = A + B / N      A: receive tuples and partial results, and probe with them
                          B: store tuples, look at candidates, call predicates, send partial results

If all hops end in one epoch, one stream is stored once, and all nodes store the tuples of the others. Work on
a tuple or a partial result without a tuple of this stream is in A, other work is in B, and partial results
are not sent.

PSP's equations 1 to 3 are those of w: its inverse is the service rate. A node more adds to every epoch what
Spark needs for it, as a hop of the network adds to the latency of PSP's ring (equation 5):

    epoch(N) = (EMPTY_EPOCH_S + N NODE_S) / (1 - w(N))          latency(N) = (1/2 + hops) epoch(N)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod, sqrt

from thetastream.engine.multiway.graph import JoinGraph
from thetastream.families.hops.graph import list_hops
from thetastream.families.option_values import Objective
from thetastream.families.pairs.cost import SEND_BYTE_S
from thetastream.families.pairs.workload import HOUR_S
from thetastream.index.base import BISECTION_S, INSERT_S
from thetastream.lowering.query import Stream
from thetastream.lowering.report import Fact
from thetastream.lowering.selectivity import Tie
from thetastream.lowering.statistics import Statistics, estimate_width

EMPTY_EPOCH_S = 0.45
"""Seconds of an epoch without tuples: the driver, a router and the first node
(``thetastream.simulator.limits``)."""
NODE_S = 0.03
"""Seconds by which a further node makes an epoch longer: its Spark task and the commit of its state, on a few
cores."""
FULLEST = 0.5
"""The largest share of its time that a node is busy under the objective "both", so that it can serve twice
the rate."""
NEARLY_ALL = 0.95
"""The share of the highest service rate that the objective "throughput" asks for. Each further node adds
less."""


@dataclass(frozen=True)
class HopLoad:
    """Steady load of one hop of one origin, per second."""

    probes: float
    """Partial results that probe."""
    candidates: float
    """Stored tuples that the index offers them."""
    found: float
    """Partial or complete results that the hop finds."""


@dataclass(frozen=True)
class MultiwayLoad:
    """The load of a multiway join per second of event time."""

    rate: float
    """Tuples of all streams per second."""
    held: tuple[float, ...]
    """Number of stored tuples of each stream."""
    hops: tuple[tuple[HopLoad, ...], ...]
    """The loads of the hops of each origin."""
    every_node_s: float
    """A: seconds of work that every node does."""
    divided_s: float
    """B: seconds of work that are divided among the nodes."""
    sent_bytes: float
    """Bytes sent to one node per second."""
    stored_once: int | None = None
    """The stream whose tuples are stored once, if all hops end in one epoch. None with the mailbox."""

    def copies(self, nodes: int) -> float:
        """Return how many nodes store a tuple, on average.

        >>> MultiwayLoad(1, (10, 10, 20), (), 0, 0, 0, stored_once=2).copies(3)
        2.0
        """
        if self.stored_once is None:
            return 1.0
        # If all tuples are joined in the epoch in which they come, none is held.
        held = self.held if sum(self.held) else (1.0,) * len(self.held)
        return nodes - (nodes - 1) * held[self.stored_once] / sum(held)

    @property
    def candidates(self) -> float:
        """Stored tuples that all hops look at, per second."""
        return sum(hop.candidates for hops in self.hops for hop in hops)

    @property
    def output_rate(self) -> float:
        """Results per second."""
        return sum(hops[-1].found for hops in self.hops)

    def busy(self, nodes: int) -> float:
        """Return the share of its time that each of ``nodes`` nodes is busy."""
        return self.every_node_s + self.divided_s / nodes

    def service_rate(self, nodes: int) -> float:
        """Return the tuples per second that saturate the nodes (PSP, equation 3)."""
        return self.rate / self.busy(nodes) if self.busy(nodes) else inf

    def max_output_rate(self, nodes: int) -> float:
        """Return the results per second if the nodes are busy all the time (PSP, equation 4)."""
        return self.output_rate / self.busy(nodes) if self.busy(nodes) else inf

    def bandwidth(self, nodes: int) -> float:
        """Return the bytes per second that cross the exchange. Tuples and partial results go to all nodes."""
        return nodes * self.sent_bytes

    def epoch_s(self, nodes: int) -> float:
        """Return the seconds of an epoch if each one begins when the one before ends.

        An epoch of d seconds brings the work of d seconds: d = EMPTY_EPOCH_S + N NODE_S + w(N) d. If a node
        is busy all the time, it falls behind without bound, and the epoch is infinite.
        """
        idle = 1 - self.busy(nodes)
        return (EMPTY_EPOCH_S + nodes * NODE_S) / idle if idle > 0 else inf

    def response_latency_s(self, nodes: int) -> float:
        """Return the seconds from a tuple's arrival to its last result.

        They are half an epoch, and one epoch for each hop, or one for all.
        """
        n_epochs = 1 if self.stored_once is not None else max(map(len, self.hops), default=1)
        return (0.5 + n_epochs) * self.epoch_s(nodes)

    def optimal_length(self, most: int, objective: Objective = "both") -> int:
        """Return the best number of nodes, at most ``most``, for an objective.

        - "latency": the least response latency. More nodes share the work, and make epochs longer.
        - "throughput": the fewest nodes with 95 % of the highest service rate, which rises with each node.
        - "both": the least response latency of the numbers of nodes that can serve twice the rate.
        """
        lengths = range(1, most + 1)
        if objective == "throughput":
            enough = NEARLY_ALL * self.service_rate(most)
            return next(n for n in lengths if self.service_rate(n) >= enough)
        fit = [n for n in lengths if objective == "latency" or self.busy(n) <= FULLEST]
        return min(fit or [most], key=lambda n: (self.response_latency_s(n), self.busy(n)))


def choose_initial_slice(held: float, nodes: int) -> int:
    """Choose the initial number of tuples in a slice.

    Each node holds eight slices of the smallest window, of which ``held`` tuples are stored. So no node is
    idle, and none holds an eighth more than its share. Smaller slices cost more searches, because a node
    stores a run in each epoch that brings it a slice.

    >>> choose_initial_slice(held=10_000, nodes=4)
    312
    """
    return max(1, int(held / (8 * nodes)))


def compute_load(
    rates: Sequence[float],
    held: Sequence[float],
    hop_orders: Sequence[Sequence[int]],
    selectivity: Mapping[tuple[frozenset[int], int], float],
    index_share: Mapping[tuple[frozenset[int], int], float],
    candidate_s: Mapping[tuple[frozenset[int], int], float],
    tuple_bytes: Sequence[float],
    stored_once: int | None = None,
) -> MultiwayLoad:
    """Compute the steady load of a multiway join.

    Parameters
    ----------
    rates, held, tuple_bytes : sequences of float
        For each stream: tuples per second, stored tuples, and bytes of a tuple as it is sent.
    hop_orders : sequence of sequences of int
        For each stream, the other streams in the order of the hops.
    selectivity, index_share, candidate_s : mappings
        For (members, target) of each hop: the share of the stored tuples that match, the share that the index
        offers, and the seconds to look at one candidate.
    stored_once : int, optional
        The stream whose tuples are stored once, if all hops end in one epoch.

    Examples
    --------
    Two streams have ten tuples per second and a hundred stored tuples each. A tenth of the stored tuples
    match. There is no index.

    >>> one = {(frozenset({0}), 1): 0.1, (frozenset({1}), 0): 0.1}
    >>> scan, fast = dict.fromkeys(one, 1.0), dict.fromkeys(one, 1e-6)
    >>> load = compute_load([10, 10], [100, 100], [(1,), (0,)], one, scan, fast, [8, 8])
    >>> load.output_rate, load.hops[0][0].candidates
    (200.0, 1000.0)
    """
    origins, every, divided, sent = [], 0.0, 0.0, 0.0
    for origin, order in enumerate(hop_orders):
        members, partial, width = frozenset({origin}), rates[origin], tuple_bytes[origin]
        hops = []
        for n, target in enumerate(order):
            key = members, target
            candidates = partial * index_share[key] * held[target]
            found = partial * selectivity[key] * held[target]
            hops.append(HopLoad(partial, candidates, found))
            compare_s, search_s = candidates * candidate_s[key], partial * BISECTION_S * 20
            if stored_once is None or n == 0:
                sent += partial * width
                every += partial * width * SEND_BYTE_S
            if stored_once is None:
                every, divided = every + search_s, divided + compare_s
            elif stored_once in members:
                divided += search_s + compare_s
            elif stored_once == target:
                every, divided = every + search_s, divided + compare_s
            else:
                every += search_s + compare_s
            width += tuple_bytes[target]
            if stored_once is None and n + 1 < len(order):
                divided += found * width * SEND_BYTE_S
            members, partial = members | {target}, found
        if stored_once in (None, origin):
            divided += rates[origin] * INSERT_S
        else:
            every += rates[origin] * INSERT_S
        origins.append(tuple(hops))
    return MultiwayLoad(sum(rates), tuple(held), tuple(origins), every, divided, sent, stored_once)


def estimate_load(
    streams: Sequence[Stream],
    graph: JoinGraph,
    hop_orders: Sequence[Sequence[int]],
    ties: Sequence[Tie],
    statistics: Statistics,
    stored_once: int | None = None,
) -> MultiwayLoad:
    """Estimate the load of a query.

    ``ties`` are the aliases and the assumed selectivities of its conjuncts. If the candidates of a tuple are
    known, the selectivities are scaled so that the hops look at as many. ``stored_once`` is the stream whose
    tuples are stored once, if all hops end in one epoch.
    """
    aliases = [stream.alias for stream in streams]
    rates = [statistics.rate_of(alias) for alias in aliases]
    held = []
    for n, rate in enumerate(rates):
        lifetime_us = graph.lifetime_us(n)
        seconds = HOUR_S if lifetime_us is None else lifetime_us / 1e6
        held.append(rate * seconds if graph.counts is None else float(graph.counts[n]))
    keys = {(frozenset(members), target) for members, target in list_hops(hop_orders)}
    widths = [
        statistics.nbytes_of(stream.alias) or sum(estimate_width(c.block_type) for c in stream.carried)
        for stream in streams
    ]

    def estimate(factor: float, looks: float = 1.0) -> MultiwayLoad:
        """Estimate the load if selectivities are ``factor`` times the assumed ones, and an index offers
        ``looks`` times as many candidates."""
        selectivity, share, candidate_s = {}, {}, {}
        for members, target in keys:
            known = {aliases[n] for n in (*members, target)}
            selectivity[members, target] = prod(
                min(1.0, factor * part) for read, part in ties if aliases[target] in read and read <= known
            )
            edges = [graph.edge(member, target) for member in members]
            is_indexed = any(edge.equalities or edge.dimensions for edge in edges)
            joined = {*members, target}
            has_python = any(target in p.streams and p.streams <= joined for p in graph.predicates)
            offered = selectivity[members, target] if is_indexed and not has_python else 1.0
            share[members, target] = looks * offered
            candidate_s[members, target] = statistics.candidate_s(has_python)
        return compute_load(rates, held, hop_orders, selectivity, share, candidate_s, widths, stored_once)

    if statistics.candidates_per_tuple is None:
        return estimate(1.0)
    wanted = statistics.candidates_per_tuple * sum(rates)
    factor = _find_factor(lambda factor: estimate(factor).candidates, wanted)
    found = estimate(factor).candidates
    return estimate(factor, wanted / found if found else 1.0)


def _find_factor(count: Callable[[float], float], wanted: float) -> float:
    """Find the factor of selectivities with which hops look at ``wanted`` candidates, by bisection.

    Candidates of first hops may not depend on selectivities. So no factor may be small enough, and the
    smallest one is returned.

    >>> round(_find_factor(lambda factor: 100 + 50 * factor, wanted=350), 6)
    5.0
    """
    low, high = 1e-6, 1e6
    for _ in range(80):
        middle = sqrt(low * high)
        low, high = (low, middle) if count(middle) > wanted else (middle, high)
    return sqrt(low * high)


def explain_multiway_cost(
    load: MultiwayLoad, nodes: int, streams: Sequence[Stream], statistics: Statistics, has_predicates: bool
) -> Iterator[Fact]:
    """Yield the facts that ``explain`` shows about the load."""
    for stream, hops in zip(streams, load.hops, strict=True):
        texts = (f"{hop.probes:,.0f} x {hop.candidates / max(hop.probes, 1e-9):,.0f}" for hop in hops)
        yield Fact("", f"{stream.alias}: probes a second x candidates: {'; '.join(texts)}")
    origin = "measured" if statistics.origin == "measured" else "as given"
    known = "assumed" if statistics.seconds_per_candidate is None else origin
    yield Fact("candidate", f"{1e6 * statistics.candidate_s(has_predicates):.3g} us, {known}")
    latency, most = load.response_latency_s(nodes), load.service_rate(nodes)
    slow = "falls behind" if latency == inf else f"{latency:.1f} s after their last tuple"
    most_results = load.max_output_rate(nodes)
    yield Fact("results", f"{load.output_rate:,.0f} a second, {slow}; {most_results:,.0f} are the most")
    busy = load.busy(nodes)
    yield Fact("nodes", f"{nodes}, each busy {busy:.0%}; {most:,.0f} tuples a second are the most")
    yield Fact("exchange", f"{load.bandwidth(nodes):,.0f} bytes a second")
