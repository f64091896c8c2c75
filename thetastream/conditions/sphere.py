"""Distance on the sphere as conjuncts: three bands that an index answers, and the exact distance.

    p = R (sin lat, cos lat cos (lon + 25), cos lat sin (lon + 25))      R = 6,371,008.8 m, the mean radius
    distance(p, q) <= d  implies  |p_i - q_i| <= |p - q| <= 2 R sin(d / 2 R)  for i = 1, 2, 3

Catalyst computes the coordinates p in whole millimetres. They have no seam at the date line and no special
place at the poles, so that the bands lose no pair. A grid orders tuples by the first two coordinates. It
leaves the most candidates along the meridians 25 W and 155 E, where the third one changes most and few people
live. The distance itself is checked for the candidates inside the bands, by the haversine formula:

    h = sin^2((lat_q - lat_p) / 2) + cos lat_p cos lat_q sin^2((lon_q - lon_p) / 2)
    distance = 2 R arcsin(sqrt h)
"""

import math
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from thetastream.conditions.python import NUMPY, Predicate, predicate
from thetastream.conditions.tokens import Phrase
from thetastream.core.arguments import describe_given, is_number
from thetastream.core.errors import QueryError
from thetastream.core.sphere import METRES, RADIUS_M

POINT = (
    "CASE WHEN {lat} * {lon} * 0D = 0D THEN array(cos(radians({lat})) * cos(radians({lon})), "
    "cos(radians({lat})) * sin(radians({lon})), sin(radians({lat}))) END"
)
"""A point as an array. A number times zero is zero, and NaN and infinity times zero are NaN."""
HINT = (
    'th.within_metres("a.lat", "a.lon", "b.lat", "b.lon", 100) compares distances on a sphere by an index, '
    "and th.metres writes a distance as SQL that units compute"
)
"""What to write instead of a formula of the distance on a sphere."""
_ARCS = {"asin", "acos", "atan", "atan2"}
_ROUNDING_MM = 3
"""More than the coordinates of two points lose together when they become whole millimetres."""
_NAME = re.compile(r"(`[^`]+`|\w+)\.(`[^`]+`|\w+)")
_AXES = (
    "sin(radians({lat}))",
    "cos(radians({lat})) * cos(radians({lon} + 25))",
    "cos(radians({lat})) * sin(radians({lon} + 25))",
)


@dataclass(frozen=True)
class WithinMetres:
    """Whether two points are at most some metres apart. It takes one object of columns per alias."""

    metres: float
    columns: tuple[tuple[str, str], tuple[str, str]]
    """The names of latitude and longitude of the first and of the second alias."""
    aliases: tuple[str, str]

    def __post_init__(self) -> None:
        # A checkpoint knows a predicate by this name.
        text = repr(self.metres).replace(".", "_")
        object.__setattr__(self, "__qualname__", f"within_{text}_metres")

    def __call__(self, **points: Any) -> npt.NDArray[np.bool_]:
        """Compare the distances of pairs of points, in degrees."""
        (lat, lon), (other_lat, other_lon) = (
            [np.asarray(getattr(points[alias], name), np.float64) for name in names]
            for alias, names in zip(self.aliases, self.columns, strict=True)
        )
        found: npt.NDArray[np.bool_] = measure_metres(lat, lon, other_lat, other_lon) <= self.metres
        return found


def measure_metres(lat: Any, lon: Any, other_lat: Any, other_lon: Any) -> Any:
    """Return the distances of points in degrees on the sphere, in metres.

    >>> float(np.round(measure_metres(0.0, 179.5, 0.0, -179.5)))
    111195.0
    """
    lat, lon, other_lat, other_lon = map(np.radians, (lat, lon, other_lat, other_lon))
    with np.errstate(invalid="ignore"):
        h = (
            np.sin((other_lat - lat) / 2) ** 2
            + np.cos(lat) * np.cos(other_lat) * np.sin((other_lon - lon) / 2) ** 2
        )
        return 2 * RADIUS_M * np.arcsin(np.sqrt(np.minimum(h, 1.0)))


def within_metres(lat: str, lon: str, other_lat: str, other_lon: str, metres: float) -> list[str | Predicate]:
    """Return the condition that two points on the Earth are at most ``metres`` apart.

    The Earth counts as a sphere with its mean radius of 6,371,008.8 m. The condition is exact at the poles
    and at the date line. A NULL or NaN coordinate does not join.

    Parameters
    ----------
    lat, lon : str
        The columns of the first point, in degrees, as in ``"a.lat"``.
    other_lat, other_lon : str
        The columns of the second point, which belongs to another stream or table.
    metres : float
        The largest distance, in metres.

    Returns
    -------
    list
        Three bands, which an index answers, and the distance itself. Pass the list as ``on``, or put further
        conjuncts behind it, as in ``on=[*th.within_metres(...), "a.kind = b.kind"]``.

    Raises
    ------
    QueryError
        WITHIN_METRES if an argument is not a column with its alias, both points belong to one stream, or
        ``metres`` is not a positive number.

    Examples
    --------
    >>> on = within_metres("a.lat", "a.lon", "b.lat", "b.lon", 500)
    >>> len(on), on[0]
    (4, 'abs(try_cast(6371008800 * sin(radians(a.lat)) AS BIGINT) - try_cast(6371008800 * sin(radians(b.lat)) AS BIGINT)) <= 500003')
    """  # noqa: E501
    if not is_number(metres) or not 0 < metres < math.inf:
        what = f"metres must be a positive number, as in 500, not {describe_given(metres)}"
        raise QueryError("WITHIN_METRES", what)
    points = _read_points(lat, lon, other_lat, other_lon)
    if isinstance(points, str):
        raise QueryError("WITHIN_METRES", points)
    aliases = [pair[0][0] for pair in points]
    reach = _measure_reach_mm(float(metres))
    texts = [
        f"abs({_write_axis(axis, lat, lon)} - {_write_axis(axis, other_lat, other_lon)}) <= {reach}"
        for axis in _AXES
    ]
    names = tuple((pair[0][1], pair[1][1]) for pair in points)
    function = WithinMetres(float(metres), (names[0], names[1]), (aliases[0], aliases[1]))
    columns = dict(zip(aliases, map(list, names), strict=True))
    return [*texts, replace(predicate(NUMPY, **columns)(function), is_stable=True)]


def metres(lat: str, lon: str, other_lat: str, other_lon: str) -> str:
    """Return the distance of two points on the Earth in metres, as an expression of Spark SQL.

    Units compute it as Spark does, and an index finds points that are near. So it may be compared with a
    constant by ``<``, ``<=``, ``>`` or ``>=``, and partners may be ranked by it. The Earth counts as a sphere
    with its mean radius of 6,371,008.8 m. The distance is NULL if a coordinate is NULL, NaN or infinite.

    Parameters
    ----------
    lat, lon : str
        The columns of the first point, in degrees, as in ``"a.lat"``.
    other_lat, other_lon : str
        The columns of the second point, which belongs to another stream or table.

    Returns
    -------
    str
        SQL, as in ``on=f"{th.metres(...)} > 500000 AND a.card = b.card"`` or ``th.Nearest(3,
        by=th.metres(...))``.

    Raises
    ------
    QueryError
        METRES if an argument is not a column with its alias, or both points belong to one stream.

    Examples
    --------
    >>> metres("a.lat", "a.lon", "b.lat", "b.lon")[:64]
    'aggregate(zip_with(CASE WHEN a.lat * a.lon * 0D = 0D THEN array('
    """
    read = _read_points(lat, lon, other_lat, other_lon)
    if isinstance(read, str):
        raise QueryError("METRES", read)
    points = {"left": POINT.format(lat=lat, lon=lon), "right": POINT.format(lat=other_lat, lon=other_lon)}
    return re.sub(r"\b(left|right)\b", lambda found: points[found[1]], METRES)


def looks_like_distance(phrase: Phrase) -> bool:
    """Whether an expression seems to compute a distance on a sphere, and not in the form of ``metres``.

    >>> from thetastream.conditions import parse
    >>> haversine = "asin(sqrt(power(sin((a.x - b.x) / 2), 2) + cos(a.x) * cos(b.x))) < 0.1"
    >>> [looks_like_distance(parse(text)) for text in (haversine, "a.x + cos(a.y) < b.x", "a.cos < b.acos")]
    [True, False, False]
    """
    called = {name.text.casefold() for name, bracket in pairwise(phrase) if bracket.text == "("}
    return "cos" in called and not called.isdisjoint(_ARCS) and "zip_with" not in called


def _read_points(*texts: str) -> list[list[tuple[str, str]]] | str:
    """Return the alias and the name of latitude and longitude of both points, or what is wrong with them."""
    columns = [_read_column(text) for text in texts]
    for text, column in zip(texts, columns, strict=True):
        if column is None:
            return f"a point is given by columns, as in 'a.lat', not by {describe_given(text)}"
    points = [[column for column in columns[n : n + 2] if column] for n in (0, 2)]
    owners = [[alias.casefold() for alias, _ in point] for point in points]
    if owners[0] == owners[1] or any(len({*names}) > 1 for names in owners):
        what = f"{texts[0]}, {texts[1]} must be columns of one stream, and {texts[2]}, {texts[3]} of another"
        return f"{what} stream"
    return points


def _write_axis(axis: str, lat: str, lon: str) -> str:
    product = axis.format(lat=lat, lon=lon)
    return f"try_cast({round(RADIUS_M * 1000)} * {product} AS BIGINT)"


def _measure_reach_mm(metres: float) -> int:
    """Return the largest difference of a coordinate of two points that are ``metres`` apart."""
    half = min(metres / (2 * RADIUS_M), math.pi / 2)
    return math.ceil(2000 * RADIUS_M * math.sin(half) * (1 + 1e-12)) + _ROUNDING_MM


def _read_column(text: str) -> tuple[str, str] | None:
    """Return the alias and the name of a column; None if the text is something else."""
    found = _NAME.fullmatch(text.strip()) if isinstance(text, str) else None
    return None if found is None else (found[1].strip("`"), found[2].strip("`"))
