"""The strategy of a condition: keys, dimensions, window, index, archive period."""

import warnings

import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

import thetastream as th
from tests.support.truth import configured
from thetastream.core.columns import PASSES
from thetastream.core.condition import TIME, Bound, Dimension, Domain
from thetastream.core.sides import Side
from thetastream.families.pairs.identity import identify_two_streams
from thetastream.lowering.identity import Reading
from thetastream.lowering.payload import check_at_units, list_catalyst_residual
from thetastream.lowering.physical import Filter
from thetastream.models import Biclique

MINUTE, HOUR = 60_000_000, 3_600_000_000
A = {
    "id": "bigint",
    "price": "double",
    "qty": "int",
    "ts": "timestamp",
    "name": "string",
    "dec": "decimal(10,2)",
    "d": "date",
    "f": "float",
    "arr": "array<int>",
}
B = {
    "id": "bigint",
    "bid": "double",
    "ask": "double",
    "qty": "bigint",
    "ts": "timestamp",
    "name": "string",
    "dec": "decimal(12,4)",
    "d": "date",
    "n": "timestamp_ntz",
}


@pytest.fixture(scope="module")
def streams(spark):
    def stream(types):
        source = spark.readStream.format("rate").load()
        columns = [
            f"CAST({'timestamp' if n == 'ts' else 'NULL'} AS {type_}) AS {n}" for n, type_ in types.items()
        ]
        return source.selectExpr(*columns).withWatermark("ts", "5 seconds")

    return {"a": stream(A), "b": stream(B)}


@pytest.fixture
def plan(streams):
    def make(on, within="5 minutes", **settings):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", th.errors.CrossJoinWarning)
            return th.plan(streams, on=on, within=within, **settings)

    return make


def shape(plan):
    index = plan.join.planned.physical.indexes[0]
    return index.shape.name, index.equalities, index.dimensions


def window(plan):
    dimension = plan.join.planned.physical.condition.window
    if dimension is None:
        return None
    return tuple(None if end is None else end.delta for end in (dimension.low, dimension.high))


@pytest.mark.parametrize(
    ("on", "within", "expected"),
    [
        ("a.price BETWEEN b.bid AND b.ask", "5 minutes", ("sorted", (), (0,))),
        ("a.price > b.bid", "5 minutes", ("sorted", (), (0,))),
        ("a.qty > b.qty AND a.price BETWEEN b.bid AND b.ask", "5 minutes", ("sorted", (), (0,))),
        ("abs(a.qty - b.qty) <= 5 AND a.price BETWEEN b.bid AND b.ask", "5 minutes", ("grid", (), (0, 1))),
        ("a.id <= b.qty AND b.id <= a.qty", "5 minutes", ("intervals", (), (0, 1))),
        ("a.name = b.name", "5 minutes", ("hash", (0,), ())),
        ("a.id = b.id AND a.name = b.name", "5 minutes", ("hash", (0, 1), ())),
        ("a.id = b.id AND a.price > b.bid", "5 minutes", ("hash_sorted", (0,), (0,))),
        ("a.id = b.id AND a.qty > b.qty AND abs(a.dec - b.dec) < 1", None, ("hash_sorted", (0,), (0,))),
        ("a.name <> b.name", "5 minutes", ("sorted", (), (TIME,))),
        ("a.name <> b.name", None, ("scan", (), ())),
        ("true", None, ("scan", (), ())),
    ],
)
def test_index(plan, on, within, expected):
    made = plan(on, within)
    assert shape(made) == expected
    assert made.join.planned.physical.indexes[0] == made.join.planned.physical.indexes[1]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("scan", ("scan", (), ())),
        ("hash", ("hash", (0,), ())),
        ("sorted", ("sorted", (), (0,))),
        ("hash_sorted", ("hash_sorted", (0,), (0,))),
        ("grid", ("grid", (), (0, TIME))),
    ],
)
def test_forced_index(plan, kind, expected):
    assert shape(plan("a.id = b.id AND a.price BETWEEN b.bid AND b.ask", index=kind)) == expected


def test_between_is_one_band_over_payload_columns(plan):
    physical = plan("a.price BETWEEN b.bid AND b.ask").join.planned.physical
    (dimension,) = physical.condition.dimensions
    assert (dimension.point, dimension.low, dimension.high) == (Side.LEFT, Bound(0), Bound(1))
    assert [key.column for key in physical.condition.sides[0].keys] == ["c1"]
    assert [key.column for key in physical.condition.sides[1].keys] == ["c10", "c11"]
    assert physical.sides[0].computed == physical.sides[1].computed == ()
    assert physical.residual == ()


def test_two_comparisons_of_one_point_are_one_band(plan):
    right = plan("b.qty > a.qty AND b.qty <= a.id").join.planned.physical.condition.dimensions
    assert [(d.point, d.low, d.high) for d in right] == [(Side.RIGHT, Bound(0, is_strict=True), Bound(1))]
    left = plan(
        "b.bid <= a.price AND a.id = b.id AND a.price < b.ask"
    ).join.planned.physical.condition.dimensions
    assert [(d.point, d.low, d.high) for d in left] == [(Side.LEFT, Bound(0), Bound(2, is_strict=True))]


def test_keys_are_computed_once(plan):
    sides = plan(
        "a.price * 3 > b.bid AND a.price * 3 < b.ask * 2 AND a.price * 3 <> b.bid"
    ).join.planned.physical.sides
    assert sides[0].computed == (("k0", "a.price * 3"),)
    assert sides[1].computed == (("k0", "b.ask * 2"),)
    assert sides[0].filters == (Filter.require("a.price * 3"), Filter.require("`a`.`ts`"))


def test_a_column_plus_a_constant_does_not_travel(plan):
    physical = plan("a.price BETWEEN b.bid - 1.5 AND 2 + b.bid AND a.qty - 3 = b.id").join.planned.physical
    assert physical.sides[0].computed == physical.sides[1].computed == ()
    assert {(key.column, key.offset) for key in physical.condition.sides[1].keys} == {
        ("c10", -1.5),
        ("c10", 2.0),
        ("c9", 0),
    }
    assert physical.condition.sides[0].keys[1].offset == -3
    # A single outlier whose sum overflows must not stop the stream, so Catalyst does not compute the sum.
    assert Filter.require("`a`.`qty`") in physical.sides[0].filters


def test_long_integers_are_added_by_catalyst(plan):
    """The sum does not fit into 64 bits, and an overflow is an error in Spark."""
    assert plan("a.id + 1 = b.id").join.planned.physical.sides[0].computed == (("k0", "a.id + 1"),)
    assert plan("a.qty + 2000000000000000000 = b.id").join.planned.physical.sides[0].computed != ()


def test_a_watermark_on_a_struct_is_no_event_time(spark, streams):
    counts = streams["a"].groupBy(F.window("ts", "5 minutes"), "id").count()
    joined = {"a": counts, "b": streams["b"]}
    physical = th.plan(joined, on="a.id = b.id AND a.count > b.qty").join.planned.physical
    assert physical.condition.sides[0].time is None
    with pytest.raises(th.QueryError, match="EVENT_TIME_TYPE"):
        th.plan(joined, on="a.id = b.id", within="5 minutes")


def test_a_constant_string_is_a_boolean(plan):
    physical = plan("a.id = b.id AND 'true'").join.planned.physical
    assert Filter("false") not in physical.sides[0].filters


def test_both_ends_of_an_integer_band_share_a_key(plan):
    physical = plan("b.id BETWEEN a.qty - 10 AND a.qty + 10").join.planned.physical
    (dimension,) = physical.condition.dimensions
    assert (dimension.low, dimension.high) == (Bound(0, -10), Bound(0, 10))
    (mirrored,) = plan("a.qty - 10 <= b.id AND a.qty + 10 > b.id").join.planned.physical.condition.dimensions
    assert (mirrored.low, mirrored.high) == (Bound(0, -10, is_strict=True), Bound(0, 10))


def test_decimals_of_two_scales_are_cast(plan):
    physical = plan("a.dec < b.dec").join.planned.physical
    assert physical.sides[0].computed == (("k0", "CAST((a.dec) AS DECIMAL(12,4))"),)
    assert physical.sides[1].computed == ()
    assert physical.condition.sides[0].keys[0].domain is Domain.DECIMAL


def test_strings(plan):
    equal = plan("a.name = b.name").join.planned.physical
    assert equal.sides[0].computed == (("k0", "hash(a.name)"),)
    assert (equal.residual, equal.condition.same) == ((), (("c4", "c14"),))
    shouted = plan("upper(a.name) = b.name").join.planned.physical
    assert (shouted.residual, shouted.condition.same) == (("upper(a.name) = b.name",), ())
    ordered = plan("a.name < b.name").join.planned.physical
    assert ordered.condition.dimensions[0].high == Bound(0)
    assert ordered.residual == ("a.name < b.name",)


def test_filters_and_constants(plan):
    physical = plan(
        "a.price > 1 AND qty_is_not_there IS NULL AND 1 = 1 AND b.bid < 2".replace(
            "qty_is_not_there", "a.qty"
        )
    ).join.planned.physical
    assert [one.text for one in physical.sides[0].filters] == [
        "a.price > 1",
        "a.qty IS NULL",
        "(`a`.`ts`) IS NOT NULL",
    ]
    assert [one.text for one in physical.sides[1].filters] == ["b.bid < 2", "(`b`.`ts`) IS NOT NULL"]
    never = plan("1 = 2 AND a.price > b.bid").join.planned.physical
    assert never.sides[0].filters[0] == never.sides[1].filters[0] == Filter("false")


def test_strings_that_and_takes_for_booleans(plan):
    physical = plan("a.name AND a.price > b.bid AND coalesce(a.name, b.name)").join.planned.physical
    assert physical.sides[0].filters[0].text == "CAST((a.name) AS BOOLEAN)"
    assert physical.residual == ("CAST((coalesce(a.name, b.name)) AS BOOLEAN)",)


def test_half_a_between_is_a_filter(plan):
    physical = plan("a.price BETWEEN 5 AND b.bid").join.planned.physical
    assert physical.sides[0].filters[0].text == "(a.price) >= (5)"
    assert physical.condition.dimensions[0].high == Bound(0)
    assert physical.residual == ()


@pytest.mark.parametrize(
    ("on", "delta", "residual"),
    [
        ("abs(a.qty - b.qty) <= 5", 5, 0),
        ("abs(a.qty - b.qty) < 5", 4, 0),
        ("abs(a.qty - b.qty) < 5.5", 5, 0),
        ("abs(b.qty - a.qty) <= 0", 0, 0),
        ("abs(a.dec - b.dec) <= 0.5", 5000, 0),
        ("abs(a.dec - b.dec) < 0.00019", 1, 0),
        ("abs(a.dec - b.dec) <= 5e-1", 5001, 1),
        ("abs(a.d - b.d) <= INTERVAL 36 HOURS", 1, 0),
        ("abs(a.d - b.d) < INTERVAL 1 DAY", 0, 0),
    ],
)
def test_bands(plan, on, delta, residual):
    physical = plan(on).join.planned.physical
    (dimension,) = physical.condition.dimensions
    assert (dimension.low, dimension.high) == (Bound(0, -delta), Bound(0, delta))
    assert len(physical.residual) == residual


@pytest.mark.parametrize("limit", ["NULL", "-1", "double('NaN')", "double('Infinity')"])
def test_bands_without_a_usable_limit_stay_behind(plan, limit):
    physical = plan(f"abs(a.price - b.bid) <= {limit}").join.planned.physical
    assert physical.condition.dimensions == ()
    assert len(physical.residual) == 1


@pytest.mark.parametrize(
    ("on", "open_residual"),
    [
        ("abs(a.price - b.bid) <= 0.1", 0),
        ("a.name < b.name AND abs(a.price - b.bid) < 1e-3", 0),
        ("a.name BETWEEN b.name AND concat(b.name, 'z')", 0),
        ("abs(a.dec - b.dec) <= 5e-1", 1),
        ("a.name <> b.name AND abs(a.price - b.bid) < 1", 1),
        ("a.name = b.name OR abs(a.price - b.bid) <= 0.1", 1),
    ],
)
def test_units_that_write_results_evaluate_what_they_can_of_the_residual(plan, on, open_residual):
    physical = plan(on).join.planned.physical
    assert len(list_catalyst_residual(physical)) == open_residual
    # Both ways of writing continue from one checkpoint.
    ways = [
        identify_two_streams(each, Biclique(1), Reading()) for each in (physical, check_at_units(physical))
    ]
    assert ways[0] == ways[1]


@pytest.mark.parametrize(
    ("on", "within", "expected"),
    [
        ("a.id = b.id", None, None),
        ("a.id = b.id", "5 minutes", (-5 * MINUTE, 5 * MINUTE)),
        ("a.id = b.id", {"a": "1 hour", "B": "1 minute"}, (-HOUR, MINUTE)),
        ("b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 HOUR", None, (-HOUR, 0)),
        ("a.ts >= b.ts - INTERVAL '10' MINUTES", None, (-10 * MINUTE, None)),
        ("a.ts > b.ts - INTERVAL '10' MINUTES AND a.ts < b.ts", None, (-10 * MINUTE + 1, -1)),
        ("INTERVAL 1 MINUTE + a.ts >= b.ts", "5 minutes", (-MINUTE, 5 * MINUTE)),
        ("a.ts + INTERVAL 1 HOUR - INTERVAL 1 MINUTE >= b.ts", None, (-59 * MINUTE, None)),
        ("abs(a.ts - b.ts) <= INTERVAL 1 MINUTE", None, (-MINUTE, MINUTE)),
        ("a.ts = b.ts", None, (0, 0)),
        ("a.ts > b.n", None, None),
    ],
)
def test_window(plan, on, within, expected):
    assert window(plan(on, within)) == expected


def test_window_of_days_where_the_clock_changes(spark, plan):
    on = "b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 DAY"
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        exact = plan(on, None)
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        local = plan(on, None)
        hours = plan(on.replace("1 DAY", "23 HOURS"), None)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert window(exact) == (-24 * HOUR, 0)
    assert exact.join.planned.physical.condition.dimensions == ()
    assert window(local) == (-50 * HOUR, 0)
    assert len(local.join.planned.physical.condition.dimensions) == 1
    assert window(hours) == (-23 * HOUR, 0)


def test_a_window_that_holds_nothing(plan):
    physical = plan("a.ts > b.ts + INTERVAL 1 HOUR", "5 minutes").join.planned.physical
    assert physical.sides[0].filters[0] == physical.sides[1].filters[0] == Filter("false")


@pytest.mark.parametrize("how", ["right", "full"])
def test_no_tuple_waits_if_the_window_holds_nothing(plan, how):
    answering = plan("a.ts > b.ts + INTERVAL 1 HOUR", "5 minutes", how=how)
    left, right = answering.join.planned.physical.sides
    assert (left.filters[:1] == (Filter("false"),)) == (how == "right")
    assert right.filters == ()
    assert "CASE WHEN false" in dict(right.computed)[PASSES]
    assert answering.join.planned.physical.lifetimes_us == (0, 0)
    explained = answering.explain()
    assert "a.ts - b.ts <= 5 minutes" in explained
    assert "the bounds contradict each other" in explained


@pytest.mark.parametrize(
    ("within", "asked", "expected"),
    [
        ("5 minutes", None, 30_000_000),
        ({"a": "1 minute", "b": "1 hour"}, None, 360_000_000),
        ("1 second", None, 1_000_000),
        ("5 minutes", "1 minute", MINUTE),
        (None, None, None),
        (None, "1 minute", None),
    ],
)
def test_archive_period(plan, within, asked, expected):
    settings = {} if asked is None else {"archive_period": asked}
    assert plan("a.id = b.id", within, **settings).join.planned.physical.archive_period_us == expected


def test_settings_of_the_session(spark, plan):
    with configured(spark, {"spark.thetastream.index": "scan"}):
        assert shape(plan("a.id = b.id"))[0] == "scan"
        assert shape(plan("a.id = b.id", index="hash"))[0] == "hash"
    # A join leaves out what it cannot honour, and refuses what no join has.
    three = {alias: spark.sql("SELECT 1 AS id, timestamp_seconds(1) AS ts") for alias in "abc"}
    on = "a.id = b.id AND b.id = c.id"
    with configured(spark, {"spark.thetastream.order": "outer", "spark.thetastream.max_units": "8"}):
        assert th.join(three, on, "1 minute").count() == 1
        assert th.join(three, on, "1 minute", th.Ring(2)).count() == 1
    with (
        configured(spark, {"spark.thetastream.oder": "outer"}),
        pytest.raises(th.QueryError, match="did you mean 'order'"),
    ):
        plan("a.id = b.id")


def test_options_of_a_statement(spark):
    text = "SELECT a.id FROM a, b WHERE a.id = b.id WITHIN 1 minute"
    frame = spark.sql("SELECT 1 AS id, timestamp_seconds(1) AS ts")
    streams = {"a": frame, "b": frame}
    explained = th.sql(spark, f"EXPLAIN {text} OPTIONS (index = 'scan')", streams).collect()[0].plan
    assert "forced by index=" in explained
    for clause, expected in (
        ("columns = 'id'", "'columns' is no option here"),
        ("order = 'upside down'", "ORDER"),
        ("index = 'tree'", "UNKNOWN_INDEX"),
        ("every = '1 minute'", "EVERY.*groups none"),
    ):
        with pytest.raises(th.QueryError, match=expected):
            th.sql(spark, f"{text} OPTIONS ({clause})", streams)
    with pytest.raises(th.QueryError, match="the caller gives it too"):
        th.sql(spark, f"{text} OPTIONS (index = 'scan')", streams, index="hash")
    grouped = "SELECT count(*) AS n FROM a, b WHERE a.id = b.id WITHIN 1 minute OPTIONS (every = '1 minute')"
    assert th.sql(spark, grouped, streams).collect() == [(1,)]


def test_python_predicate(plan):
    @th.predicate(b=["name"], A=["ARR", "ts"])
    def similar(A, b):
        return pc.equal(pc.list_value_length(A.ARR), pc.utf8_length(b.name))

    predicate = plan([similar, "a.id < b.id"]).join.planned.physical.condition.predicates[0]
    assert predicate.aliases == ("A", "b")
    assert predicate.columns == ((("ARR", "c8"), ("ts", "c3")), (("name", "c14"),))


def test_names_without_alias_and_case(plan):
    physical = plan("PRICE between Bid and ASK and A.ID = B.iD").join.planned.physical
    assert len(physical.condition.equalities) == 1
    assert physical.condition.dimensions[0].is_two_sided
    assert physical.residual == ()


def test_cross_join_warns(streams):
    with pytest.warns(th.errors.CrossJoinWarning, match="inside the window"):
        th.plan(streams, on="a.price > 1", within="1 minute")


def test_same_frame_twice(streams):
    physical = th.plan(
        {"x": streams["a"], "y": streams["a"]}, on="x.price < y.price", within="1 minute"
    ).join.planned.physical
    assert [c.block_column for side in physical.sides for c in side.carried] == [f"c{n}" for n in range(18)]


def test_explain_tells_every_stage(plan):
    text = plan("a.price BETWEEN b.bid AND b.ask AND a.name <> b.name AND a.qty > 1").explain()
    for stage in ("Parsed", "Rewritten", "Shaped", "Physical", "Cost"):
        assert f"== {stage} ==" in text
    for words in ("residual a.name <> b.name", "filter   a.qty > 1", "biclique", "sorted on dimension 0"):
        assert words in text


def test_floats_are_widened(plan):
    (dimension,) = plan("abs(a.price - b.bid) <= 0.1").join.planned.physical.condition.dimensions
    assert isinstance(dimension, Dimension)
    assert 0.1 < dimension.high.delta < 0.1 + 1e-15
    assert dimension.low.delta == -dimension.high.delta
