"""The distance on the sphere: no pair is lost by its bands, and refusals by name."""

import math
import pickle

import numpy as np
import pyarrow as pa
import pytest

from tests.support.local import LocalJoin
from tests.support.requests import make_request
from thetastream.conditions import parse
from thetastream.conditions.sphere import (
    _measure_reach_mm,
    looks_like_distance,
    measure_metres,
    metres,
    within_metres,
)
from thetastream.core.condition import Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.errors import QueryError
from thetastream.core.sides import Side
from thetastream.core.sphere import RADIUS_M
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.families.pairs.plan import PAIRS
from thetastream.index import REGISTRY, IndexSpec
from thetastream.lowering.report import print_sections
from thetastream.models import Biclique


def to_millimetres(lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
    """Compute the coordinates that Catalyst computes, as rows."""
    lat, lon = np.radians(lat), np.radians(lon + 25)
    axes = np.sin(lat), np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon)
    return np.trunc(round(RADIUS_M * 1000) * np.array(axes)).astype(np.int64)


def draw_points(chance: np.random.Generator, n: int, metres: float) -> tuple[np.ndarray, ...]:
    """Draw pairs of points about ``metres`` apart, many of them at the poles and at the date line."""
    lat = np.degrees(np.arcsin(chance.uniform(-1, 1, n)))
    lon = chance.uniform(-180, 180, n)
    step = np.degrees(metres / RADIUS_M)
    lat[: n // 4] = chance.choice([-90.0, 90.0, 0.0], n // 4) + chance.normal(0, step, n // 4)
    lon[n // 4 : n // 2] = 180 + chance.normal(0, step, n // 4)
    bearing, far = chance.uniform(0, 2 * np.pi, n), metres / RADIUS_M * chance.choice([1, 1, 0.5, 1.001], n)
    at, over = np.radians(lat), np.radians(lon)
    to = np.arcsin(np.clip(np.sin(at) * np.cos(far) + np.cos(at) * np.sin(far) * np.cos(bearing), -1, 1))
    turn = np.arctan2(np.sin(bearing) * np.sin(far) * np.cos(at), np.cos(far) - np.sin(at) * np.sin(to))
    other_lon = np.degrees(over + turn)
    wrapped = np.where(chance.random(n) < 0.5, (other_lon + 180) % 360 - 180, other_lon)
    return lat, lon, np.degrees(to), wrapped


@pytest.mark.parametrize("metres", [0.5, 500.0, 50_000.0, 3_000_000.0, 20_015_000.0, 30_000_000.0])
def test_the_bands_lose_no_pair(metres: float) -> None:
    lat, lon, other_lat, other_lon = draw_points(np.random.default_rng(7), 40_000, metres)
    is_near = measure_metres(lat, lon, other_lat, other_lon) <= metres
    apart = np.abs(to_millimetres(lat, lon) - to_millimetres(other_lat, other_lon)).max(axis=0)
    assert (apart[is_near] <= _measure_reach_mm(metres)).all()
    assert is_near.sum() > 8_000


def test_distances_at_the_poles_and_at_the_date_line() -> None:
    quarter = math.pi / 2 * RADIUS_M
    cases = [
        ((90, 0), (90, 137), 0),
        ((89.999, 0), (89.999, 180), 2 * math.radians(0.001) * RADIUS_M),
        ((0, 179.999), (0, -179.999), math.radians(0.002) * RADIUS_M),
        ((0, 0), (0, 90), quarter),
        ((0, 0), (0, 180), 2 * quarter),
        ((-90, 3), (90, -60), 2 * quarter),
    ]
    for point, other, wanted in cases:
        assert measure_metres(*point, *other) == pytest.approx(wanted, rel=1e-9, abs=1e-6)


def test_the_function_is_exact_and_travels() -> None:
    given = within_metres("a.lat", "a.lon", "b.y", "b.`the x`", 500)
    marked = pickle.loads(pickle.dumps(given[3]))
    assert marked.columns == (("a", ("lat", "lon")), ("b", ("y", "the x")))
    assert marked.name == "within_500_0_metres"

    class Columns:
        def __init__(self, **columns: list[float]) -> None:
            self.__dict__.update({name: np.array(values) for name, values in columns.items()})

    degree = 500 / RADIUS_M * 180 / math.pi
    b = Columns(y=[degree * (1 - 1e-9), degree * (1 + 1e-9), math.nan])
    b.__dict__["the x"] = np.zeros(3)
    assert marked(a=Columns(lat=[0.0] * 3, lon=[0.0] * 3), b=b).tolist() == [True, False, False]


@pytest.mark.parametrize(
    "given",
    [
        ("a.lat", "a.lon", "b.lat", "b.lon", 0),
        ("a.lat", "a.lon", "b.lat", "b.lon", math.nan),
        ("a.lat", "a.lon", "b.lat", "b.lon", True),
        ("a.lat", "b.lon", "b.lat", "a.lon", 5),
        ("a.lat", "a.lon", "A.lat", "a.lon", 5),
        ("a.lat + 1", "a.lon", "b.lat", "b.lon", 5),
        ("lat", "a.lon", "b.lat", "b.lon", 5),
        (None, "a.lon", "b.lat", "b.lon", 5),
    ],
)
def test_refused_by_name(given) -> None:
    with pytest.raises(QueryError, match="WITHIN_METRES"):
        within_metres(*given)


def test_points_of_one_stream_have_no_distance() -> None:
    for given in (("a.lat", "b.lon", "b.lat", "a.lon"), ("a.lat", "a.lon", "A.lat", "a.lon"), ("x", *"yzw")):
        with pytest.raises(QueryError, match=r"\[METRES\]"):
            metres(*given)


HALF = "sin(radians(b.x - a.x) / 2)"
HAVERSINE = f"{HALF} * {HALF} + cos(a.x) * cos(b.x) * power(sin(a.x - b.x), 2)"
FORMULAS = (
    f"12742 * ASIN(SQRT({HAVERSINE})) <= 5",
    f"12742 * atan2(sqrt({HAVERSINE}), sqrt(1 - ({HAVERSINE}))) <= 5 OR a.k = 1",
    "6371 * acos(sin(a.x) * sin(b.x) + cos(a.x) * cos(b.x) * cos(b.k - a.k)) < 5",
)


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_distance_that_is_written_out_gets_a_hint(formula: str) -> None:
    """Such a conjunct was evaluated for all pairs of the window, and explain said nothing of th.metres."""
    plan = PAIRS.plan(make_request(f"a.k = b.k AND {formula}"))
    text = print_sections([*plan.explain()])
    assert text.count("th.metres writes a distance as SQL that units compute") == 1


def test_other_formulas_get_no_hint() -> None:
    written = metres("a.x", "a.k", "b.x", "b.k")
    for other in (
        f"{written} = 5",
        "a.x + cos(b.x) < 5",
        "asin(a.x) < sin(b.x)",
        "a.x + b.x < 5 -- acos( cos(",
    ):
        assert not looks_like_distance(parse(other))


@pytest.mark.parametrize(
    ("lat", "lon"),
    [
        ((-90, 90), (-180, 180)),
        ((1.2, 1.6), (103.6, 104.1)),
        ((51.3, 51.7), (-0.5, 0.3)),
        ((-0.2, 0.2), (154.8, 155.2)),
    ],
    ids=["the Earth", "Singapore", "London", "the worst place"],
)
def test_bands_leave_few_candidates(lat: tuple[float, float], lon: tuple[float, float]) -> None:
    chance, n, metres = np.random.default_rng(3), 5_000, 500
    reach = _measure_reach_mm(metres)
    keys = tuple(Key(axis, Domain.INT) for axis in "xyz")
    sides = SideSpec("a", ("x",), ("y", "z"), keys), SideSpec("b", ("x",), ("y", "z"), keys)
    bands = tuple(Dimension(Side.LEFT, n, Bound(n, -reach), Bound(n, reach)) for n in range(3))
    condition = Condition(sides, dimensions=bands)
    batches = []
    for _ in Side:
        sines = chance.uniform(*np.sin(np.radians(lat)), n)
        axes = to_millimetres(np.degrees(np.arcsin(sines)), chance.uniform(*lon, n))
        batches.append(pa.RecordBatch.from_arrays(list(map(pa.array, axes)), names=["x", "y", "z"]))
    candidates = {}
    for name, dimensions in (("grid", (0, 1)), ("scan", ())):
        index = IndexSpec(REGISTRY[name], (), dimensions)
        join = LocalJoin(UnitSpec(condition, (index, index), None), Biclique(1))
        pairs = sum(matches.left.num_rows for matches in join.epoch(*batches))
        candidates[name] = sum(counters.candidates for counters in join.counters), pairs
    assert candidates["grid"][1] == candidates["scan"][1]
    assert candidates["scan"][0] > 20 * candidates["grid"][0]
