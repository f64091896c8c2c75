"""Random conditions over rows near one instant, as texts, and Spark's own answer to them.

Each kind is one that was once wrong: elapsed time where a clock changes, bounds in other spellings, bounds
that contradict each other, equalities of which NULL is a value, tumbling windows, collations, nested columns.
Spans are multiples of a ``scale`` in seconds, so that the same texts fit rows a second or minutes apart.
"""

import re
from collections.abc import Sequence
from random import Random

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.truth import made, write_elapsed

STARTS = [
    ("America/New_York", "2025-11-02 06:00:00Z"),
    ("America/New_York", "2025-03-09 07:00:00Z"),
    ("America/New_York", "1883-11-18 17:00:00Z"),
    ("Australia/Lord_Howe", "2025-04-05 15:00:00Z"),
    ("Pacific/Apia", "2011-12-30 10:00:00Z"),
    ("Africa/Casablanca", "2026-02-15 02:00:00Z"),
    ("Asia/Kathmandu", "1985-12-31 18:30:00Z"),
    ("Europe/Dublin", "1970-01-01 00:00:00Z"),
    ("UTC", "1969-12-31 23:59:50Z"),
    ("Asia/Tokyo", "1899-12-31 23:00:00Z"),
    ("Antarctica/Troll", "2025-03-30 01:00:00Z"),
    ("Pacific/Chatham", "2025-04-05 14:00:00Z"),
    ("Africa/Monrovia", "1972-01-07 00:44:30Z"),
    ("America/St_Johns", "2006-10-29 02:31:00Z"),
]
"""Zones, and instants at which their clocks change, or at which time is counted from."""
COLUMNS = {
    "k": ("int", ["1", "2", "NULL", "2", "3"]),
    "l": ("bigint", ["9223372036854775807", "NULL", "-9223372036854775808", "0"]),
    "d": ("double", ["'NaN'", "-0.0", "NULL", "0.0", "1.5"]),
    "m": ("decimal(38,18)", ["1.5", "NULL", "0", "0.000000000000000001"]),
    "s": ("string", ["'a'", "'A'", "NULL", "'a '", "''"]),
    "c": ("string collate UTF8_LCASE", ["'ΑΣ'", "'ας'", "NULL", "'a'", "'A'"]),
    "r": ("string collate UTF8_LCASE_RTRIM", ["'a '", "'A'", "NULL", "''"]),
    "z": (
        "struct<x:double,y:array<int>>",
        ["named_struct('x', -0.0D, 'y', array(1))", "NULL", "named_struct('x', 0.0D, 'y', array(1))"],
    ),
    "v": ("array<int>", ["array(1, NULL)", "array()", "NULL"]),
}
NAMES = [*COLUMNS, "z.x", "z.y"]
EQUAL = ["a.{0} <=> b.{0}", "a.{0} IS NOT DISTINCT FROM b.{0}", "equal_null(b.{0}, a.{0})", "a.{0} = b.{0}"]
ORDERED = ("<", "<=", ">", ">=")
LAST = 99
"""The id of the row that comes long after the others and moves the watermark past them."""
N_ROWS = 11


def draw_rows(spark: SparkSession, random: Random, start: str, scale: int) -> DataFrame:
    """Draw rows up to 12 spans before and after the start, and the last one."""
    micros = sorted(
        random.randrange(-12, 13) * scale * 10**6 + random.choice([0, 0, 1, -1]) for _ in range(N_ROWS)
    )
    selects = []
    for n, offset in [*enumerate(micros), (LAST, 10_000 * scale * 10**6)]:
        cells = ", ".join(
            f"CAST({random.choice(values)} AS {kind}) AS {name}" for name, (kind, values) in COLUMNS.items()
        )
        selects.append(
            f"SELECT {n} AS id, timestamp_micros(unix_micros(timestamp'{start}') + {offset}) AS ts, {cells}"
        )
    return made(spark, selects)


def draw_condition(random: Random, scale: int) -> str:
    """Draw a condition of one to three parts."""
    text = _draw_part(random, scale)
    for _ in range(random.choice([0, 0, 1, 2])):
        link = random.choice(["AND", "AND", "AND", "OR", "AND NOT"])
        text = f"({text}) {link} ({_draw_part(random, scale)})"
    return text


def _draw_part(random: Random, scale: int) -> str:
    kinds = [_draw_equality, _draw_difference, _draw_spelling, _draw_contradiction, _draw_window]
    return random.choice(kinds)(random, scale)


def _draw_equality(random: Random, scale: int) -> str:
    return random.choice(EQUAL).format(random.choice(NAMES))


def _draw_difference(random: Random, scale: int) -> str:
    first, second = random.sample(["a.ts", "b.ts"], 2)
    low, high = sorted(random.randrange(-6, 7) * scale for _ in range(2))
    op = random.choice(ORDERED)
    return random.choice(
        [
            f"{first} - {second} {op} INTERVAL '{high}' SECOND",
            f"{first} - {second} BETWEEN INTERVAL '{low}' SECOND AND INTERVAL '{high}' SECOND",
            f"abs({first} - {second}) {op} INTERVAL '{abs(high)}' SECOND",
        ]
    )


def _draw_spelling(random: Random, scale: int) -> str:
    """Draw a bound on event times that is no difference of two timestamps."""
    first, second = random.sample(["a.ts", "b.ts"], 2)
    low, high = sorted(random.randrange(-6, 7) * scale for _ in range(2))
    op = random.choice(ORDERED)
    unit = "MINUTE" if scale % 60 == 0 else "SECOND"
    size = 60 if unit == "MINUTE" else 1
    return random.choice(
        [
            f"timestampdiff({unit}, {first}, {second}) BETWEEN {low // size} AND {high // size}",
            f"date_diff({unit}, {first}, {second}) {op} {high // size}",
            f"unix_micros({first}) - unix_micros({second}) {op} {high * 10**6}",
            f"unix_millis({first}) {op} unix_millis({second}) + {high * 1000}",
            f"CAST({first} AS BIGINT) - CAST({second} AS BIGINT) BETWEEN {low} AND {high}",
            f"CAST({first} AS DOUBLE) {op} CAST({second} AS DOUBLE) + {high}",
            f"{first} {op} {second} - make_dt_interval(0, 0, 0, {high})",
            f"{first} BETWEEN {second} + INTERVAL '{low}' SECOND AND {second} + INTERVAL '{high}' SECOND",
            f"NOT ({first} {op} {second} + INTERVAL '{low}' SECOND OR {second} > {first})",
            f"date_trunc('{unit}', {first}) {op} date_trunc('{unit}', {second})",
        ]
    )


def _draw_contradiction(random: Random, scale: int) -> str:
    first, second = random.sample(["a.ts", "b.ts"], 2)
    low, high = (f"{second} + INTERVAL '{n * scale}' SECOND" for n in (4, 1))
    return random.choice(
        [
            f"{first} BETWEEN {low} AND {high}",
            f"{first} < {second} AND {first} > {second}",
            "a.k > 5 AND a.k < 3",
            "b.l IS NULL AND a.l = b.l",
            f"{first} > {second} + INTERVAL '{20 * scale}' SECOND",
        ]
    )


def _draw_window(random: Random, scale: int) -> str:
    length = random.choice([2, 5]) * scale
    more = random.choice(["", f", '{length} seconds', '{random.randrange(-1, 2) * scale} seconds'"])
    a, b = (f"window({alias}.ts, '{length} seconds'{more})" for alias in "ab")
    op = random.choice(["=", "=", "<=>"])
    return random.choice(
        [f"{a} {op} {b}", f"{a}.start {op} {b}.start", f"{a}.end <= {b}.start", f"{a}.end > b.ts"]
    )


_WINDOW = re.compile(r"window\(([ab]\.ts), '(\d+) seconds'(?:, '\d+ seconds', '(-?\d+) seconds')?\)")


def write_for_spark(text: str, a: DataFrame, b: DataFrame) -> str:
    """Write a condition for Spark's batch join: windows as arithmetic, differences as elapsed time."""

    def write(found: re.Match[str]) -> str:
        micros, length, offset = f"unix_micros({found[1]})", int(found[2]) * 10**6, int(found[3] or 0) * 10**6
        start = f"({micros} - pmod({micros} - ({offset}), {length}))"
        return (
            f"named_struct('start', timestamp_micros({start}), 'end', timestamp_micros({start} + {length}))"
        )

    return _WINDOW.sub(write, write_elapsed(text, a, b))


def pick_ids(joined: DataFrame, how: str, number: int) -> DataFrame:
    """Return the ids of the rows of a join, with the number of the join."""
    other = F.lit(None) if how in ("semi", "anti") else F.col("b.id")
    return joined.select(F.lit(number).alias("n"), F.col("a.id").alias("a"), other.cast("int").alias("b"))


def draw_epochs(random: Random) -> Sequence[Sequence[int]]:
    """Draw the epochs in which rows come, out of order by a few rows, and the last one alone."""
    ids = sorted(range(N_ROWS), key=lambda n: n + random.random() * 3)
    cuts = sorted(random.sample(range(1, N_ROWS), 3))
    epochs = [ids[low:high] for low, high in zip([0, *cuts], [*cuts, N_ROWS], strict=True)]
    return [*epochs, [LAST]]
