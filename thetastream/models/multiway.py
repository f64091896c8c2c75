"""The base class of multi-way models, whose nodes store shares of the new tuples and join them hop by hop.

A multi-way model defines four things: the nodes that receive a new tuple, the new tuples that a node stores,
the stored tuples that a probe reads, and the nodes at which partial results look for their next partners.
Everything else (hops, global order, purge and state) is the same for all of them
(``thetastream.engine.multiway.node``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import numpy as np

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.keys import Int64s, Mask
from thetastream.core.sides import Role, Side
from thetastream.core.spans import Rows, to_micros
from thetastream.models.base import AUTO, Hashes, Model, Route, is_positive
from thetastream.models.drawing import Drawing, circle


class JoinContext(NamedTuple):
    """The properties of a join that a model may use before the join is planned."""

    aliases: tuple[str, ...]
    has_event_time: tuple[bool, ...]
    """For each stream, whether it has an event time."""
    n_units: int
    """The number of units that fill the shuffle partitions of the session."""
    duration: Callable[[str, str], int]
    """Reads an interval from text, in microseconds. The second argument is the name of the setting for
    errors."""


class Travel(Enum):
    """Where partial results look for their next partners."""

    ALL = "all nodes, in the next epoch"
    COVER = "the nodes that a cover names, in the next epoch"
    STAY = "the node that found them, in the same epoch"


class NewTuples(NamedTuple):
    """The new tuples of one stream in an epoch, without late tuples."""

    stream: int
    sequence: Int64s
    """The numbers of the tuples in the stream."""
    times: Int64s
    """The event times in microseconds."""
    reach: Sequence[tuple[int | None, int | None]]
    """For each stream j, the bounds of t_j - t, where t is one of ``times`` and t_j is the event time of a
    tuple in the same result. None leaves an end open."""
    n_new: int = 0
    """The number of new tuples of all streams in the epoch."""


class Probes(NamedTuple):
    """Probes: the interval of event times of their partners, and a tie-breaking number per probe."""

    earliest: Int64s
    latest: Int64s
    tie_breakers: Int64s


class RoutedTuples(NamedTuple):
    """New tuples of one stream as a router sees them: without numbers, and with late tuples."""

    stream: int
    times: Int64s
    """The event times in microseconds."""
    reach: Sequence[tuple[int | None, int | None]]
    """As in ``NewTuples``."""
    find_probes: Callable[[], Probes]
    """Returns the probes of the first hop, one for each tuple."""


class Multiway(Model):
    """A model that joins two or more streams hop by hop."""

    runs_as_unit: ClassVar[bool] = True
    """Whether a join of two streams runs without hops, as under a router of two streams."""
    nodes: int | str
    order: Mapping[str, Sequence[str]] | None
    in_flight: int | None = None
    """The number of tuples that may be in flight at the same time. None means any number."""
    travel: ClassVar[Travel] = Travel.ALL
    """Where partial results look for their next partners."""
    stored_once: int | None = None
    """The stream that the planner has chosen to be the only one whose tuples are stored once. None if it
    chooses none."""
    measures_hops: ClassVar[bool] = False
    """Whether each node sees all partial results of the tuples that it begins with, so that hop orders can
    follow measured selectivities."""
    span_field: ClassVar[str]
    """The name of the field with the length of the stretches into which streams are cut."""
    may_be_auto: ClassVar[bool] = False
    """Whether the planner can choose the number of nodes."""
    chooses_receivers: ClassVar[bool] = False
    """Whether a new tuple goes only to the nodes that store it or look for its partners, and not to all
    nodes. Such a model cannot number tuples, because no node sees all of them."""

    @classmethod
    def variants(
        cls, n_units: int, subgroups: Callable[[int], int], needs_partners: bool = False
    ) -> Iterator[Model]:
        yield from ()  # the cost of hops does not follow from routes

    def _check(self) -> None:
        is_auto = self.may_be_auto and self.nodes == AUTO
        if not is_auto and not is_positive(self.nodes):
            what = 'a positive integer or "auto"' if self.may_be_auto else "a positive integer"
            raise QueryError("BAD_UNITS", f"nodes must be {what}, not {self.nodes!r}")
        name, span = self.span_field, self.span
        if isinstance(span, timedelta) and to_micros(span) <= 0:
            raise QueryError(f"BAD_{name.upper()}", f"{name} must be longer than nothing, not {span}")
        if self.order is not None and not isinstance(self.order, Mapping):
            raise QueryError(
                "BAD_HOPS", f'order must map aliases to the others, {{"a": ["c", "b"]}}, not {self.order!r}'
            )

    @property
    def span(self) -> Any:
        """The length of a stretch: text, a duration or a number of tuples."""
        return getattr(self, self.span_field)

    @property
    def span_us(self) -> int:
        """The length of a stretch in microseconds of event time."""
        if not isinstance(self.span, timedelta):
            raise TypeError(f"the planner must convert a {self.span_field} that is text to a duration first")
        return to_micros(self.span)

    @property
    def n_units(self) -> int:
        if isinstance(self.nodes, str):
            raise TypeError('the planner must replace nodes="auto" by a number first')
        return self.nodes

    def draw(self) -> Drawing:
        return circle(["node"] * self.n_units)

    @property
    def runs_on_units(self) -> bool:
        return self.runs_as_unit and not self.has_open_size and not isinstance(self.span, str)

    def fit(self, join: JoinContext, problems: list[ThetastreamError]) -> "Multiway":
        """Resolve the number of nodes, durations that are text, and the aliases of streams."""
        model, name = self, self.span_field
        if model.nodes == AUTO:
            model = model._with(nodes=join.n_units)
        read_hops(self.order, join.aliases, problems)
        try:
            if isinstance(model.span, str):
                span = timedelta(microseconds=join.duration(model.span, name))
                model = model._with(**{name: span})
            model = model.resolve_aliases(join.aliases)
        except QueryError as problem:
            problems.append(problem)
            return model
        problems += [
            QueryError(
                f"BAD_{name.upper()}",
                f"{name}s of event time need one of the streams that are cut, "
                f"and {join.aliases[n]!r} has none",
            )
            for n in model.list_cut_streams(len(join.aliases))
            if not join.has_event_time[n]
        ]
        return model

    def with_nodes(self, n_nodes: int) -> "Multiway":
        """Return the model with ``n_nodes`` nodes."""
        return self._with(nodes=n_nodes)

    @property
    def on_one_node(self) -> "Multiway":
        """The model with one node, which makes all hops of batch DataFrames in one epoch."""
        return self.with_nodes(1)

    @property
    def on_batch(self) -> "Multiway":
        """The model that joins batch DataFrames two at a time."""
        return self

    @property
    def has_open_size(self) -> bool:
        """Whether the user left the number of nodes open."""
        return self.nodes == AUTO

    def with_slices(self, n_tuples: int) -> "Multiway":
        """Return the model with slices of ``n_tuples`` tuples, if it has slices and the user did not set
        them."""
        return self

    def _with(self, **fields: Any) -> "Multiway":
        changed: Multiway = replace(self, **fields)  # type: ignore[type-var]
        return changed

    def has_mailbox(self, n_streams: int) -> bool:
        """Whether partial results are sent to the next epoch."""
        return n_streams > 2 and self.travel is not Travel.STAY

    @property
    def can_move_tuples(self) -> bool:
        """Whether a stored tuple may lie on any node, because all partial results visit all nodes."""
        return self.travel is Travel.ALL

    @property
    def n_parts(self) -> int:
        """The number of parts into which a node divides the stored tuples of a stream. Probes read single
        parts."""
        return 1

    @property
    def sees_all(self) -> bool:
        return not self.chooses_receivers

    @property
    def keeps_arrival_order(self) -> bool:
        """Whether windows may count tuples in a join hop by hop."""
        return False

    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        for node in range(self.n_units):
            yield Route(node, Role.BOTH, None)

    def counts(self, unit: int, side: Side) -> bool:
        return unit == 0 or self.chooses_receivers

    def choose_receivers(self, arrivals: RoutedTuples) -> Mask:
        """Choose the nodes that receive each new tuple, if the model ``chooses_receivers``: those that store
        it, those at which it looks for partners, and the one that counts it.

        Returns
        -------
        array of bool of shape (nodes, tuples)
        """
        raise NotImplementedError

    def choose_probed(self, arrivals: RoutedTuples) -> Mask:
        """Choose the nodes of an older generation that receive each new tuple, as ``choose_receivers`` does.

        They do not count it.
        """
        raise NotImplementedError

    def is_counted(self, node: int, arrivals: RoutedTuples) -> Mask:
        """Choose the new tuples that a node counts, so that each is counted at one node."""
        raise NotImplementedError

    def store_once(self, stream: int) -> "Multiway":
        """Return the model that makes all hops in one epoch, and stores the tuples of ``stream`` once."""
        raise NotImplementedError

    def resume(self, stored_once: int | None) -> "Multiway":
        """Return the model that continues from a state, given the stream that its nodes store once; None if
        the state names none."""
        return self

    def resolve_aliases(self, aliases: Sequence[str]) -> "Multiway":
        """Return the model with numbers of streams instead of aliases."""
        return self

    def list_cut_streams(self, n_streams: int) -> Sequence[int]:
        """List the streams that are cut by event time, which must have event times."""
        return () if isinstance(self.span, Rows) else range(n_streams)

    def assign_parts(self, node: int, arrivals: NewTuples) -> Int64s:
        """Choose the part of the store in which a node stores each tuple; -1 if it does not store the
        tuple."""
        raise NotImplementedError

    def choose_probes(self, node: int, probes: Probes) -> Sequence[Int64s | None]:
        """For each part of the store of a node, choose the positions of the probes that read it; None means
        all."""
        return (None,)


def read_hops(
    order: Mapping[str, Sequence[str]] | None, aliases: Sequence[str], problems: list[ThetastreamError]
) -> dict[int, tuple[int, ...]]:
    """Read the hop orders that the user set, as a map from each stream to the other streams, by number.

    >>> read_hops({"a": ["c", "B"]}, ["a", "b", "c"], [])
    {0: (2, 1)}
    """
    given = order or {}
    folded = [alias.casefold() for alias in aliases]
    wanted = {str(alias).casefold(): asked for alias, asked in given.items()}
    problems += [
        QueryError("BAD_HOPS", f"order names {alias!r}, which is not one of {', '.join(aliases)}")
        for alias in wanted
        if alias not in folded
    ]
    if len(wanted) < len(given):
        problems.append(
            QueryError("BAD_HOPS", f"order must name a stream once; it names {', '.join(map(str, given))}")
        )
    orders = {}
    for n, alias in enumerate(aliases):
        if folded[n] not in wanted:
            continue
        asked, others = wanted[folded[n]], [other for other in aliases if other != alias]
        names = [str(other).casefold() for other in asked] if isinstance(asked, list | tuple) else []
        if sorted(names) == sorted(map(str.casefold, others)):
            orders[n] = tuple(map(folded.index, names))
        else:
            problems.append(
                QueryError(
                    "BAD_HOPS",
                    f"order of {alias!r} must list each of {', '.join(others)} once, not {asked!r}",
                )
            )
    return orders


def number_stretches(times: Int64s, span_us: int) -> Int64s:
    """Compute the number of the stretch in which each event time lies.

    >>> number_stretches(np.array([-1, 0, 9, 10]), 10)
    array([-1,  0,  0,  1])
    """
    return np.floor_divide(times, span_us)
