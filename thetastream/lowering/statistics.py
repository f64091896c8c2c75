"""Statistics of the streams: rates, sizes and lateness, either measured or assumed.

When a join is planned, its tuples are not counted yet. So every figure has a default, which this module
defines.

``estimate_width`` estimates how many bytes a value has in Arrow, by its Spark type.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from thetastream.core.arguments import is_number
from thetastream.core.errors import QueryError
from thetastream.core.sides import Side
from thetastream.index.base import CANDIDATE_S

TUPLES_PER_SECOND = 1_000.0
"""Assumed rate of every stream. Costs are nearly linear in it, so comparisons hold at any equal rate."""
LARGEST = 1e15
"""The largest figure that is accepted."""
HEAVIEST_KEY = 0.15
"""Assumed share of the most frequent equality key. Zipf 1.1 over 10,000 keys gives 0.15."""
PREDICATE_S = 1e-6
"""Assumed seconds that the Python predicates of a condition take for one candidate."""

_FIGURES = ("watermark_delay_s", "epoch_s", "candidates_per_tuple", "heaviest_key", "seconds_per_candidate")

PerStream: TypeAlias = float | tuple[float, float] | Mapping[str, float]
"""One figure for both streams, a pair for left and right, or a figure for each alias."""
_FIXED = {
    "boolean": 0.125,
    "tinyint": 1,
    "smallint": 2,
    "int": 4,
    "float": 4,
    "date": 4,
    "decimal": 16,
    "string": 20,
    "char": 20,
    "varchar": 20,
    "binary": 20,
    "array": 64,
    "map": 64,
    "struct": 64,
    "variant": 64,
    "geometry": 64,
    "geography": 64,
}
"""Bytes of a value by the head of its Spark type; other types have 8.

A text is assumed to have 16 bytes and an offset."""
MOST_CHOSEN = 32
"""The largest number of units of a chosen model."""


@dataclass(frozen=True)
class Statistics:
    """Figures from which costs are estimated. A figure that is left out is assumed.

    Parameters
    ----------
    tuples_per_second : float, (float, float), or mapping of alias to float, optional
        Tuples per second of event time. It is 1,000 if it is left out.
    bytes_per_tuple : float, (float, float), or mapping of alias to float, optional
        Memory of a stored tuple with its share of the index. It follows from the schema if it is left out.
    watermark_delay_s : float, optional
        How far the watermark is behind the latest event time. It is the delay of ``withWatermark`` if it is
        left out.
    epoch_s : float
        The event time that an epoch spans. The tuples of an epoch are state until they can be dropped.
    candidates_per_tuple : float, optional
        Pairs that the index offers per arriving tuple; in a join hop by hop, those of all hops.
    heaviest_key : float, optional
        The share of tuples that have the most frequent equality key. It is 0.15 if it is left out. For a
        band, it is the share in the fullest stretch of eight bands, and ``auto`` routes by range only if it
        is given.
    seconds_per_candidate : float, optional
        The seconds to compare one candidate, Python predicates included. If it is left out, it is 20 ns, and
        a microsecond more with a Python predicate. ``th.statistics`` measures it in a query that runs, and
        ``th.measure_predicate`` on sample rows before it starts.
    results_per_second : mapping of str to float, optional
        For three streams or more, the results per second of event time of joins of some of them, by their
        aliases with commas between them, as in ``{"a, b": 50}``. The tree of joins of a pipeline follows
        from these rates if they determine how selective the condition is.
    origin : str
        ``measured`` or ``assumed``.

    Raises
    ------
    QueryError
        STATISTICS if a figure is negative, above 1e15, or not a number.

    Examples
    --------
    >>> known = Statistics(tuples_per_second={"a": 500}, bytes_per_tuple=(80, 64))
    >>> known.rate(Side.LEFT, "a"), known.rate(Side.RIGHT, "b"), known.nbytes(Side.RIGHT, "b")
    (500, 1000.0, 64)
    """

    tuples_per_second: PerStream | None = None
    bytes_per_tuple: PerStream | None = None
    watermark_delay_s: float | None = None
    epoch_s: float = 0.0
    candidates_per_tuple: float | None = None
    heaviest_key: float | None = None
    seconds_per_candidate: float | None = None
    results_per_second: Mapping[str, float] | None = None
    origin: str = "assumed"

    def __post_init__(self) -> None:
        for name in ("tuples_per_second", "bytes_per_tuple"):
            given = getattr(self, name)
            values = tuple(given.values()) if isinstance(given, Mapping) else given
            if isinstance(values, list):
                values = tuple(values)
                object.__setattr__(self, name, values)
            is_pair = isinstance(values, tuple) and (len(values) == 2 or isinstance(given, Mapping))
            if values is not None and not all(map(_is_figure, values if is_pair else (values,))):
                raise _make_error(name, given, "a number, a pair of them, or one by alias")
        results = self.results_per_second
        is_mapping = isinstance(results, Mapping) and all(map(_is_figure, results.values()))
        if results is not None and not is_mapping:
            raise _make_error("results_per_second", results, "a number by aliases")
        for name in _FIGURES:
            value = getattr(self, name)
            if value is not None and not _is_figure(value):
                raise _make_error(name, value, "a number")
        if self.heaviest_key is not None and self.heaviest_key > 1:
            raise _make_error("heaviest_key", self.heaviest_key, "a share, at most 1")
        if self.origin not in ("measured", "assumed"):
            raise _make_error("origin", self.origin, "'measured' or 'assumed'")

    def rate(self, side: Side, alias: str) -> float:
        """Return the tuples per second of a stream."""
        given = _get_figure(self.tuples_per_second, side, alias)
        return TUPLES_PER_SECOND if given is None else given

    def nbytes(self, side: Side, alias: str) -> float | None:
        """Return the bytes of a stored tuple, or None if they must be derived from the schema."""
        return _get_figure(self.bytes_per_tuple, side, alias)

    def rate_of(self, alias: str) -> float:
        """Return the tuples per second of one stream of a join of any number."""
        given = _get_figure_of_many(self.tuples_per_second, alias)
        return TUPLES_PER_SECOND if given is None else given

    def nbytes_of(self, alias: str) -> float | None:
        """Return the bytes of a stored tuple of one stream of a join of any number, or None if unknown."""
        return _get_figure_of_many(self.bytes_per_tuple, alias)

    def candidate_s(self, has_predicates: bool) -> float:
        """Return the seconds to compare one candidate, given or assumed.

        >>> [Statistics(seconds_per_candidate=given).candidate_s(True) for given in (3e-5, None)]
        [3e-05, 1.02e-06]
        """
        if self.seconds_per_candidate is not None:
            return self.seconds_per_candidate
        return CANDIDATE_S + has_predicates * PREDICATE_S

    def of(self, aliases: Sequence[str]) -> "Statistics":
        """Return the figures of these streams only. Candidates are those of a join of all streams."""
        known = set(map(str.casefold, aliases))
        named = self.tuples_per_second if isinstance(self.tuples_per_second, Mapping) else {}
        has_others = any(name.casefold() not in known for name in named)

        def select(given: PerStream | None) -> PerStream | None:
            if not isinstance(given, Mapping):
                return given
            return {alias: value for alias, value in given.items() if alias.casefold() in known}

        return replace(
            self,
            tuples_per_second=select(self.tuples_per_second),
            bytes_per_tuple=select(self.bytes_per_tuple),
            candidates_per_tuple=None if has_others else self.candidates_per_tuple,
        )

    def results_of(self, aliases: Sequence[str]) -> dict[frozenset[str], float]:
        """Return the rates of results of these streams, by the set of their aliases.

        >>> known = Statistics(results_per_second={"A, b": 50, "b,c": 7, "b,d": 1})
        >>> sorted((sorted(streams), rate) for streams, rate in known.results_of("abc").items())
        [(['a', 'b'], 50), (['b', 'c'], 7)]
        """
        known = {alias.casefold(): alias for alias in aliases}
        rates = {}
        for name, rate in (self.results_per_second or {}).items():
            named = {part.strip().casefold() for part in name.split(",")}
            if len(named) > 1 and named <= known.keys():
                rates[frozenset(known[alias] for alias in named)] = rate
        return rates

    @property
    def skew(self) -> float:
        """The share of tuples that have the most frequent key."""
        return HEAVIEST_KEY if self.heaviest_key is None else self.heaviest_key


def _get_figure(given: PerStream | None, side: Side, alias: str) -> float | None:
    if isinstance(given, Mapping):
        return {name.casefold(): value for name, value in given.items()}.get(alias.casefold())
    if isinstance(given, tuple):
        return given[side]
    return given


def _get_figure_of_many(given: PerStream | None, alias: str) -> float | None:
    if isinstance(given, tuple):
        raise _make_error("statistics", given, "one figure, or one by alias, for more than two streams")
    return _get_figure(given, Side.LEFT, alias)


def _is_figure(value: object) -> bool:
    return is_number(value) and 0 <= value <= LARGEST


def _make_error(name: str, value: object, what: str) -> QueryError:
    return QueryError(
        "STATISTICS", f"{name} ({value!r}) must be {what}, from 0 to {LARGEST:g}: costs follow from it"
    )


def estimate_width(type_: str) -> float:
    """Estimate the bytes of a value of a Spark type.

    >>> types = "bigint", "decimal(10,2)", "varchar(9)", "array<int>", "interval day"
    >>> [estimate_width(type_) for type_ in types]
    [8, 16, 20, 64, 8]
    """
    head = type_.split("<")[0].split("(")[0].split(" ")[0]
    return _FIXED.get(head, 8)


def choose_n_units(partitions: int) -> int:
    """Return the number of units of a chosen model: one per partition, at least two."""
    return max(2, min(partitions, MOST_CHOSEN))
