"""``th.sql`` is compared with DuckDB on the whole input, as a bag; statements that cannot run are refused."""

import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import thetastream as th
from tests.support.streams import replay
from thetastream.core.errors import list_problems

pytestmark = pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")

START = datetime(2024, 3, 1, tzinfo=UTC)
SCHEMA = "id int, k int, v double, name string, ts timestamp"
SIZES = {"r": 40, "s": 35, "t": 12}


def rows(name: str, n: int) -> list[tuple[Any, ...]]:
    chance = random.Random(name)
    return [
        (
            number,
            chance.choice([None, *range(6)]),
            chance.choice([None, *(quarter / 4 for quarter in range(-20, 20))]),
            chance.choice([None, "", "ä", "x y", "it's", "{b}"]),
            START + timedelta(milliseconds=250 * chance.randrange(4 * n)),
        )
        for number in range(n)
    ]


ROWS = {name: rows(name, n) for name, n in SIZES.items()}


@pytest.fixture(scope="module")
def tables(spark):
    return {name: spark.createDataFrame(found, SCHEMA) for name, found in ROWS.items()}


@pytest.fixture(scope="module")
def duck():
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    fields = [("id", pa.int32()), ("k", pa.int32()), ("v", pa.float64()), ("name", pa.string())]
    schema = pa.schema([*fields, ("ts", pa.timestamp("us", tz="UTC"))])
    for name, found in ROWS.items():
        table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in found], schema)
        connection.register(f"{name}_arrow", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_arrow")
    return connection


def bag(found: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in found)


class Draw:
    """Draws one random statement of the grammar, for ``th.sql`` and for DuckDB."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        n = chance.choice([2, 2, 2, 3])
        names = chance.sample(list(SIZES), n) if chance.random() < 0.8 else ["t"] * n
        self.aliases = [f"q{i}" for i in range(n)] if chance.random() < 0.5 or n > len(set(names)) else names
        self.sources = [
            name if name == alias else f"{name} {chance.choice(['AS ', ''])}{alias}"
            for name, alias in zip(names, self.aliases, strict=True)
        ]
        if chance.random() < 0.2:
            inner = "SELECT id, k + 1 AS k, v, name, ts FROM {} z WHERE z.id % 2 = 0"
            self.sources[0] = f"({inner.format(names[0])}) AS {self.aliases[0]}"
        self.conditions = [self.condition(a, b) for a, b in zip(self.aliases, self.aliases[1:], strict=False)]
        self.conditions += [
            self.condition(*chance.sample(self.aliases, 2)) for _ in range(chance.randrange(2))
        ]
        if chance.random() < 0.4:
            self.conditions.append(f"{chance.choice(self.aliases)}.v > {chance.randrange(-4, 3)}")
        self.seconds = {alias: chance.choice([2, 5, 20]) for alias in self.aliases}
        self.window = chance.choice(["none", "all", "each"])
        if self.window == "all":
            self.seconds = dict.fromkeys(self.aliases, 5)
        self.is_grouped = chance.random() < 0.3
        self.items, self.tail = self.select()

    def condition(self, a: str, b: str) -> str:
        forms = [
            f"{a}.k = {b}.k",
            f"{a}.v < {b}.v",
            f"abs({a}.v - {b}.v) <= 0.5",
            f"{a}.v BETWEEN {b}.v - 1 AND {b}.v + 0.25",
            f"({a}.k = {b}.k OR {a}.v > {b}.v + 3)",
            f"{a}.name = {b}.name AND {a}.k <> {b}.k",
            f"{a}.k + {b}.k = 5",
            f"{a}.k >= {b}.k AND {a}.v <= {b}.v",
            f"coalesce({a}.name, 'none') = coalesce({b}.name, 'none')",
        ]
        return self.chance.choice(forms)

    def select(self) -> tuple[str, str]:
        a, b = self.aliases[0], self.aliases[-1]
        if self.is_grouped:
            having = self.chance.choice(["", " HAVING count(*) > 2"])
            return f"{a}.k, count(*) AS n, sum({b}.v) AS total, max({a}.v) AS top", f" GROUP BY {a}.k{having}"
        items = [f"{a}.id", f"{b}.id AS other", f"{a}.v + {b}.v AS sum", f"upper({b}.name) AS name", f"{b}.k"]
        listed = self.chance.sample(items, self.chance.randrange(1, len(items)))
        return self.chance.choice(["", "DISTINCT "]) + ", ".join(listed), ""

    def thetastream(self) -> str:
        if self.chance.random() < 0.5:
            body = f"FROM {', '.join(self.sources)} WHERE {' AND '.join(self.conditions)}"
        else:
            on = self.conditions[: len(self.sources) - 1]
            joins = "".join(f" JOIN {s} ON {c}" for s, c in zip(self.sources[1:], on, strict=True))
            rest = self.conditions[len(on) :]
            body = f"FROM {self.sources[0]}{joins}" + (f" WHERE {' AND '.join(rest)}" if rest else "")
        windows = {
            "none": "",
            "all": " WITHIN 5 seconds",
            "each": " WITHIN " + ", ".join(f"{a} {n} SECONDS" for a, n in self.seconds.items()),
        }
        return f"SELECT ONLINE {self.items} {body}{windows[self.window]}{self.tail}"

    def duckdb(self) -> str:
        latest = f"greatest({', '.join(f'{alias}.ts' for alias in self.aliases)})"
        inside = [f"{latest} - {a}.ts <= INTERVAL {n} SECONDS" for a, n in self.seconds.items()]
        conditions = self.conditions if self.window == "none" else [*self.conditions, *inside]
        return (
            f"SELECT {self.items} FROM {', '.join(self.sources)} WHERE {' AND '.join(conditions)}{self.tail}"
        )


def check(spark, tables, duck, seed: int) -> None:
    drawn = Draw(random.Random(seed))
    text = drawn.thetastream()
    found = bag(th.sql(spark, text, streams=tables).collect())
    wanted = bag(duck.execute(drawn.duckdb()).fetchall())
    assert found == wanted, f"seed {seed}: {text}"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(12))
def test_drawn_statements(spark, tables, duck, seed):
    check(spark, tables, duck, seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(15))
def test_many_drawn_statements(spark, tables, duck, block):
    for seed in range(1000 + 20 * block, 1020 + 20 * block):
        check(spark, tables, duck, seed)


# Select list


def test_stars_and_names_of_one_stream(spark, tables):
    r, s = tables["r"].select("id", "v"), tables["s"].select(tables["s"].id.alias("sid"), "k")
    streams = {"r": r, "s": s}
    assert th.sql(spark, "SELECT ONLINE * FROM r, s WHERE id = sid", streams).columns == [
        "id",
        "v",
        "sid",
        "k",
    ]
    assert th.sql(spark, "SELECT ONLINE S.*, v FROM R, S", streams).columns == ["sid", "k", "v"]
    found = th.sql(
        spark,
        "SELECT ONLINE id + sid AS n, '{x}' AS braces, count(*) OVER () FROM r, s WHERE id = 1 AND sid = 2",
        streams,
    )
    assert [tuple(row) for row in found.collect()] == [(3, "{x}", 1)]


def test_streams_without_a_named_column_and_whole_streams(spark, tables):
    streams = {name: tables[name].drop("ts") for name in ("r", "s")}
    assert th.sql(spark, "SELECT ONLINE count(*) AS n FROM r, s", streams).collect()[0].n == 40 * 35
    assert th.sql(spark, "SELECT ONLINE s.id FROM r, s", streams).count() == 40 * 35
    found = th.sql(
        spark, "SELECT ONLINE r, to_json(s) AS j FROM r, s WHERE r.id = s.id AND r.id = 3", streams
    )
    row = found.collect()[0]
    assert row.r.asDict().keys() == {"id", "k", "v", "name"}
    assert '"id":3' in row.j


def test_a_result_is_a_stream_of_the_next_statement(spark, tables):
    text = "SELECT ONLINE r.id, result_time FROM r, s WHERE r.id = s.id WITHIN 1 hour"
    pairs = th.sql(spark, text, tables)
    again = "SELECT ONLINE DISTINCT p.id, result_time AS t FROM p, t WHERE p.id = t.id WITHIN 1 hour"
    found = th.sql(spark, again, {"p": pairs, "t": tables["t"]}).collect()
    ts = {name: {row[0]: row[4].replace(tzinfo=None) for row in ROWS[name]} for name in "rst"}
    latest = {n: max(ts[name][n] for name in "rst") for n in range(SIZES["t"])}
    assert found
    assert all(row.t == latest[row.id] for row in found)


def test_only_named_columns_are_carried(spark, tables):
    text = "EXPLAIN SELECT ONLINE r.id FROM r, s WHERE r.v > s.v WITHIN 5 seconds"
    explained = th.sql(spark, text, tables).collect()[0][0]
    assert "name" not in explained
    assert "r.v > s.v" in explained


def test_tables_and_views_of_the_session(spark, tables):
    tables["r"].createOrReplaceTempView("sql_view")
    try:
        found = th.sql(spark, "SELECT ONLINE a.id FROM sql_view a JOIN `sql_view` b ON a.id = b.id").collect()
        assert len(found) == SIZES["r"]
    finally:
        spark.catalog.dropTempView("sql_view")


@pytest.mark.parametrize(
    ("text", "condition", "words", "at"),
    [
        ("SELECT ONLINE r.id FROM r, nowhere", "UNKNOWN_STREAM", "'nowhere'", "nowhere"),
        ("SELECT ONLINE r.id FROM r, s WHERE r.q > s.v", "UNKNOWN_COLUMN", "'q'", "q >"),
        ("SELECT ONLINE r.id FROM r, s WHERE r.v > z.v", "UNKNOWN_ALIAS", "'z'", "z.v"),
        ("SELECT ONLINE r.id, r.q FROM r, s", "UNKNOWN_COLUMN", "does not exist; there are id, ", "q FROM"),
        ("SELECT ONLINE id FROM r, s", "UNKNOWN_COLUMN", "more than one", "id FROM"),
        ("SELECT ONLINE r.id FROM r, s WHERE k > 1", "AMBIGUOUS_COLUMN", "'k'", "k > 1"),
        ("SELECT ONLINE r.id FROM r, s WHERE r.v > rand()", "NON_DETERMINISTIC", "rand", "rand"),
        ("SELECT ONLINE r.id FROM r, s WHERE r.v + 1", "NOT_BOOLEAN", "boolean", "r.v + 1"),
        ("SELECT ONLINE r.id FROM r, s WHERE r.v > (SELECT 1)", "SUBQUERY", "subquery", None),
        ("SELECT ONLINE r.id FROM r, s WITHIN 2 months", "INVALID_DURATION", "months", None),
        ("SELECT ONLINE r.id FROM r, s WITHIN 0 ROWS", "SYNTAX", "from 1 on", "0 ROWS"),
        ("SELECT ONLINE r.id FROM r, s WITHIN r 9 ROWS, s 1 minute", "MIXED_WINDOWS", "count tuples", None),
        ("SELECT ONLINE r.id FROM r, s, s t WITHIN r 9 ROWS, s 9 ROWS, t 1s", "MIXED_WINDOWS", "'t'", None),
        ("SELECT ONLINE * EXCEPT (ts) FROM r, s", "UNSUPPORTED_SQL", "stands alone", "* EXCEPT"),
        ("SELECT ONLINE struct(*) FROM r, s", "UNSUPPORTED_SQL", "stands alone", "*)"),
        ("SELECT ONLINE nofunction(r.id) FROM r, s", "UNRESOLVED_ROUTINE", "nofunction", None),
        ("SELECT ONLINE r.v FROM r, s GROUP BY r.k", "MISSING_AGGREGATION", "", None),
        ("SELECT ONLINE r.v +  FROM r, s", "SYNTAX", "nothing follows '+'", "+"),
        ("SELECT ONLINE r.v * / 2  FROM r, s", "PARSE_SYNTAX_ERROR", "/", None),
        ("SELECT ONLINE x.q FROM (SELECT q FROM r) x, s", "UNKNOWN_COLUMN", "q", "q FROM r"),
    ],
)  # fmt: skip
def test_refusals_point_at_their_place(spark, tables, text, condition, words, at):
    with pytest.raises(th.QueryError) as error:
        th.sql(spark, text, tables)
    assert error.value.condition == condition, error.value
    message = str(error.value)
    assert words in message
    if at is not None:
        *_, shown, caret = message.split("\n")
        assert shown[2:] == text
        assert text[caret.index("^") - 2 :].startswith(at)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        # The wrong column has the name of a right one before it.
        ("SELECT r.id FROM r, s WHERE s.name = r.name AND s.v > r.q", [("UNKNOWN_COLUMN", "q")]),
        ("SELECT r.id FROM r, s WHERE r.k > 1 AND s.v > 2 AND r.v > s.kk", [("UNKNOWN_COLUMN", "kk")]),
        # One error for one mistake, and all mistakes of a statement.
        ("SELECT r.id FROM r, s WHERE r.v BETWEN s.v AND s.v + 1", [("SYNTAX", "BETWEN")]),
        ("SELECT r.id FROM r, s WHERE r.v > s.v AND (r.v + ) > 1", [("SYNTAX", ") > 1")]),
        (
            "SELECT r.id, s.qq, nofunction(r.v) AS f FROM r, s WHERE r.x > s.y AND r.v = s.v AND t.a = 1 "
            "GROUP BY r.zz",
            [
                *(("UNKNOWN_COLUMN", "qq"), ("UNRESOLVED_ROUTINE", "nofunction"), ("UNKNOWN_COLUMN", "x >")),
                *(("UNKNOWN_COLUMN", "y AND"), ("UNKNOWN_ALIAS", "t.a"), ("UNKNOWN_COLUMN", "zz")),
            ],
        ),
        ("SELECT r.id FROM r, s WHERE v > 1 AND ts < name", [("AMBIGUOUS_COLUMN", "v >")]),
        (
            "SELECT r.ts + r.v AS a FROM r, s WHERE r.ts > s.v",
            [("DATATYPE_MISMATCH", "r.ts + r.v"), ("TYPE_MISMATCH", "r.ts > s.v")],
        ),
        ("SELECT r.id FROM r, s WHERE r.k = s.k AND r.v = s.name", [("TYPE_MISMATCH", "s.name")]),
        ("SELECT id, qq, zz FROM (SELECT id, nothing FROM r) x", [("UNKNOWN_COLUMN", "nothing")]),
        ("SELECT id AS y, 'y' AS t FROM r x WHERE id > y AND k > 1", [("UNKNOWN_COLUMN", "y AND")]),
        ("SELECT id, qq, zz FROM r x WHERE id > y", [("UNKNOWN_COLUMN", word) for word in ("qq", "zz", "y")]),
    ],
)  # fmt: skip
def test_each_mistake_is_one_error_at_its_place(spark, tables, text, places):
    with pytest.raises(th.QueryError) as error:
        th.sql(spark, text, tables)
    found = []
    for problem in list_problems(error.value):
        *_, shown, caret = str(problem).split("\n")
        assert shown[2:] == text
        found.append((problem.condition, text[caret.index("^") - 2 :]))
    assert [condition for condition, _ in found] == [condition for condition, _ in places], error.value
    assert all(at.startswith(word) for (_, at), (_, word) in zip(found, places, strict=True)), error.value


def test_several_problems_are_listed_with_their_places(spark, tables):
    with pytest.raises(th.errors.InvalidQuery) as error:
        th.sql(spark, "SELECT ONLINE r.id FROM r, s\nWHERE r.q > s.v AND r.v > s.z WITHIN 2 months", tables)
    assert [problem.condition for problem in error.value.problems] == [
        "UNKNOWN_COLUMN",
        "UNKNOWN_COLUMN",
        "INVALID_DURATION",
    ]
    assert re.findall(r"line \d+, column \d+", str(error.value)) == ["line 2, column 9", "line 2, column 29"]


# Streams


def in_order(tables, folder, delay):
    """Write both tables in the order of event time, 20 rows in each epoch."""
    made = {}
    for name in ("r", "s"):
        ids = [row[0] for row in sorted(ROWS[name], key=lambda row: row[4])]
        epochs = [ids[n : n + 20] for n in range(0, len(ids), 20)]
        made[name] = replay(tables[name], epochs, folder).withWatermark("ts", delay)
    return made


@pytest.fixture
def streams(tables, tmp_path):
    return in_order(tables, tmp_path, "100 seconds")


def run(frame, mode: str, folder) -> list[list[tuple[Any, ...]]]:
    """Run a streaming query and collect its rows epoch by epoch."""
    epochs: list[list[tuple[Any, ...]]] = []
    query = (
        frame.writeStream.outputMode(mode)
        .foreachBatch(lambda batch, _: epochs.append([tuple(row) for row in batch.collect()]))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return epochs


WINDOWED = (
    "greatest(r.ts, s.ts) - r.ts <= INTERVAL 5 SECONDS AND greatest(r.ts, s.ts) - s.ts <= INTERVAL 5 SECONDS"
)


@pytest.mark.slow
def test_streaming_select(spark, streams, duck, tmp_path):
    frame = th.sql(spark, "SELECT ONLINE r.id, s.id AS o FROM r, s WHERE r.v > s.v WITHIN 5 seconds", streams)
    assert frame.isStreaming
    wanted = duck.execute(f"SELECT r.id, s.id FROM r, s WHERE r.v > s.v AND {WINDOWED}").fetchall()
    assert bag(row for epoch in run(frame, "append", tmp_path / "c") for row in epoch) == bag(wanted)


@pytest.mark.slow
def test_streaming_groups_update(spark, streams, duck, tmp_path):
    text = """SELECT ONLINE r.k, count(*) AS n, sum(s.v) AS total
              FROM r, s WHERE r.v > s.v WITHIN 5 seconds GROUP BY r.k"""
    latest = {}
    for epoch in run(th.sql(spark, text, streams), "update", tmp_path / "c"):
        latest.update({row[0]: row for row in epoch})
    wanted = duck.execute(
        f"SELECT r.k, count(*), sum(s.v) FROM r, s WHERE r.v > s.v AND {WINDOWED} GROUP BY r.k"
    ).fetchall()
    assert bag(latest.values()) == bag(wanted)


def test_streaming_groups_by_window_of_the_result_time_append(spark, tables, duck, tmp_path):
    text = """SELECT ONLINE window(result_time, '4 seconds').start AS start, count(*) AS n
              FROM r, s WHERE r.v > s.v WITHIN 5 seconds GROUP BY window(result_time, '4 seconds')"""
    streams = in_order(tables, tmp_path, "0 seconds")
    found = [row for epoch in run(th.sql(spark, text, streams), "append", tmp_path / "c") for row in epoch]
    wanted = duck.execute(
        "SELECT time_bucket(INTERVAL 4 SECONDS, greatest(r.ts, s.ts)), count(*) FROM r, s "
        f"WHERE r.v > s.v AND {WINDOWED} GROUP BY 1"
    ).fetchall()
    closed = {start.replace(tzinfo=None) for start, _ in found}
    assert len(closed) == len(found) >= len(wanted) - 3
    assert bag(found) == bag(
        (s.replace(tzinfo=None), n) for s, n in wanted if s.replace(tzinfo=None) in closed
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ONLINE r.id, count(*) OVER () AS n FROM r, s",
        "SELECT ONLINE DISTINCT r.k, count(*) AS n FROM r, s GROUP BY r.k",
    ],
)
def test_what_only_an_ending_stream_can_answer_is_refused(spark, streams, text):
    with pytest.raises(th.QueryError, match="UNSUPPORTED_SQL"):
        th.sql(spark, text, streams)


@pytest.mark.usefixtures("only_epochs_with_rows")
def test_streaming_distinct_forgets_after_the_window(spark, streams, duck, tmp_path):
    text = "SELECT ONLINE DISTINCT r.k FROM r, s WHERE r.v > s.v WITHIN 5 seconds"
    found = [row for epoch in run(th.sql(spark, text, streams), "append", tmp_path / "c") for row in epoch]
    wanted = duck.execute(f"SELECT DISTINCT r.k FROM r, s WHERE r.v > s.v AND {WINDOWED}").fetchall()
    assert bag(found) == bag(wanted)  # The watermark is 100 s behind, so nothing is forgotten.
    with pytest.raises(th.QueryError, match="UNBOUNDED_DISTINCT"):
        th.sql(spark, "SELECT ONLINE DISTINCT r.k FROM r, s WHERE r.v > s.v", streams)
