"""What is known of the streams: rates, sizes, lateness; measured, or assumed.

A join runs before anyone has counted its tuples, so every figure has a default, stated here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from thetastream.errors import QueryError
from thetastream.types import Side

TUPLES_PER_SECOND = 1_000.0
"""Assumed of every stream. A model's cost is close to linear in it, so comparisons hold at any equal rate."""
LARGEST = 1e15
HEAVIEST_KEY = 0.15
"""Assumed share of tuples that have the most frequent equality key: Zipf 1.1 over 10,000 keys gives 0.15."""

_FIGURES = ("watermark_delay_s", "epoch_s", "candidates_per_tuple", "heaviest_key", "seconds_per_candidate")

PerStream: TypeAlias = float | tuple[float, float] | Mapping[str, float]
"""One figure for both streams, one for left and one for right, or one by alias."""


@dataclass(frozen=True)
class Statistics:
    """Figures that costs are estimated from; what is left out is assumed.

    Parameters
    ----------
    tuples_per_second : float, (float, float), or mapping of alias to float, optional
        Arrivals, by event time: tuples for every second that event time moves on. 1,000 when left out.
    bytes_per_tuple : float, (float, float), or mapping of alias to float, optional
        Memory of a stored tuple with its share of the index; worked out from the schema when left out.
    watermark_delay_s : float, optional
        How far the watermark is behind the latest event time; that of ``withWatermark`` when left out.
    epoch_s : float
        Event time an epoch spans: tuples that came in it, and those it was too early to drop, are state.
    candidates_per_tuple : float, optional
        Pairs that the index offers per arriving tuple.
    heaviest_key : float, optional
        Share of tuples that have the most frequent equality key, 0.15 when left out; for a band, share in
        the fullest stretch of eight bands: given, it lets ranges route.
    seconds_per_candidate : float, optional
        What a look at a candidate costs, Python predicates included: 20 ns when left out, a microsecond more
        with such predicates. Used for rings.
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
                raise _refused(name, given, "a number, a pair of them, or one by alias")
        for name in _FIGURES:
            value = getattr(self, name)
            if value is not None and not _is_figure(value):
                raise _refused(name, value, "a number")
        if self.heaviest_key is not None and self.heaviest_key > 1:
            raise _refused("heaviest_key", self.heaviest_key, "a share, at most 1")
        if self.origin not in ("measured", "assumed"):
            raise _refused("origin", self.origin, "'measured' or 'assumed'")

    def rate(self, side: Side, alias: str) -> float:
        """Tuples per second of a stream."""
        given = _of(self.tuples_per_second, side, alias)
        return TUPLES_PER_SECOND if given is None else given

    def nbytes(self, side: Side, alias: str) -> float | None:
        """Bytes of a stored tuple, None if only the schema says."""
        return _of(self.bytes_per_tuple, side, alias)

    def rate_of(self, alias: str) -> float:
        """Tuples per second of one stream of many."""
        given = _of_many(self.tuples_per_second, alias)
        return TUPLES_PER_SECOND if given is None else given

    def nbytes_of(self, alias: str) -> float | None:
        """Bytes of a stored tuple of one stream of many, None if only the schema says."""
        return _of_many(self.bytes_per_tuple, alias)

    def of(self, aliases: Sequence[str]) -> "Statistics":
        """The figures without those of other streams."""
        known = set(map(str.casefold, aliases))

        def kept(given: PerStream | None) -> PerStream | None:
            if not isinstance(given, Mapping):
                return given
            return {alias: value for alias, value in given.items() if alias.casefold() in known}

        return replace(
            self,
            tuples_per_second=kept(self.tuples_per_second),
            bytes_per_tuple=kept(self.bytes_per_tuple),
        )

    @property
    def skew(self) -> float:
        """Share of tuples that have the most frequent key."""
        return HEAVIEST_KEY if self.heaviest_key is None else self.heaviest_key


def _of(given: PerStream | None, side: Side, alias: str) -> float | None:
    if isinstance(given, Mapping):
        return {name.casefold(): value for name, value in given.items()}.get(alias.casefold())
    if isinstance(given, tuple):
        return given[side]
    return given


def _of_many(given: PerStream | None, alias: str) -> float | None:
    if isinstance(given, tuple):
        raise _refused("statistics", given, "one figure, or one by alias, of more than two streams")
    return _of(given, Side.LEFT, alias)


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _refused(name: str, value: object, what: str) -> QueryError:
    return QueryError(
        "STATISTICS", f"{name} ({value!r}) must be {what}, from 0 to {LARGEST:g}: costs follow from it"
    )
