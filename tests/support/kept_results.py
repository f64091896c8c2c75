"""What the queries with kept checkpoints must find, by nested loops, and what they have found."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import thetastream as th
from tests.support import answers
from tests.support.oracle import Row

MINUTE, HALF = 60, 30
"""Windows, in seconds."""

Found = Counter[tuple[Any, ...]]
Rows = Mapping[str, Sequence[Row]]
"""The rows of each stream. The second of an event time is ``t``."""


# Results


def read_rows(folder: Path) -> Found:
    """Read the rows of all epochs."""
    return Counter(row for rows in _read_epochs(folder) for row in rows)


def read_latest(folder: Path) -> Found:
    """Read the latest row of each group. The first column names the group."""
    return Counter({row[0]: row for rows in _read_epochs(folder) for row in rows}.values())


def read_store(folder: Path) -> Found:
    """Read the pairs in a store."""
    table = th.ParquetStore(str(folder / "store")).read()
    return Counter(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))


def _read_epochs(folder: Path) -> list[list[tuple[Any, ...]]]:
    files = sorted((folder / "results").iterdir(), key=lambda path: int(path.stem))
    return [[tuple(row) for row in json.loads(path.read_text())] for path in files]


# Nested loops


def find(
    aliases: str, within_s: int, holds: Callable[..., bool], show: Callable[..., Any] | None = None
) -> Callable[[Rows], Found]:
    """Find all combinations of rows inside a time window, as their ids or as ``show`` says."""

    def expect(rows: Rows) -> Found:
        found: Found = Counter()
        for combination in itertools.product(*(rows[alias] for alias in aliases)):
            times = [row["t"] for row in combination]
            if max(times) - min(times) <= within_s and holds(*combination):
                ids = tuple(row["id"] for row in combination)
                found[ids if show is None else (*ids, *show(*combination))] += 1
        return found

    return expect


def answer(how: str, holds: Callable[..., bool]) -> Callable[[Rows], Found]:
    """Answer each tuple of an outer, semi or anti join."""
    return lambda rows: answers.answers(how, within_a_minute(holds), rows["a"], rows["b"])


def within_a_minute(holds: Callable[..., bool]) -> Callable[[Row, Row], bool]:
    return lambda a, b: abs(a["t"] - b["t"]) <= MINUTE and holds(a, b)


def replay(
    aliases: str, count: int | None, holds: Callable[..., bool], shows_arrival: bool = False
) -> Callable[[Rows], Found]:
    """Join each arriving tuple with the last ``count`` tuples of each other stream; None keeps all.

    With ``shows_arrival``, a result has the number of the tuple that found it, and of its partner.
    """

    def expect(rows: Rows) -> Found:
        found: Found = Counter()
        before: dict[str, list[tuple[int, Row]]] = {alias: [] for alias in aliases}
        arrived = sorted((row["t"], alias, row["id"], row) for alias in aliases for row in rows[alias])
        for number, (_, alias, _, row) in enumerate(arrived):
            last = [before[other][-count if count else 0 :] for other in aliases]
            last[aliases.index(alias)] = [(number, row)]
            for combination in itertools.product(*last):
                if holds(*(each for _, each in combination)):
                    ids = tuple(each["id"] for _, each in combination)
                    numbers = sorted((each for each, _ in combination), reverse=True)
                    found[(*ids, *numbers) if shows_arrival else ids] += 1
            before[alias].append((number, row))
        return found

    return expect


def fold(rows: Rows) -> Found:
    """Aggregate the pairs of ``NEAR`` by the column k of the left stream."""
    groups: dict[int, list[tuple[Row, Row]]] = {}
    for a, b in itertools.product(rows["a"], rows["b"]):
        if within_a_minute(is_near)(a, b):
            groups.setdefault(a["k"], []).append((a, b))
    return Counter(
        (
            k,
            len(pairs),
            sum(b["x"] for _, b in pairs),
            min(b["y"] for _, b in pairs),
            max(a["y"] - b["y"] for a, b in pairs),
            _round_variance([b["y"] for _, b in pairs]),
            len({b["k"] for _, b in pairs}),
        )
        for k, pairs in groups.items()
    )


def _round_variance(values: list[int]) -> float:
    mean = sum(values) / len(values)
    return round(sum((value - mean) ** 2 for value in values) / len(values), 6)


def count_groups(rows: Rows) -> Found:
    """Count the combinations of three streams by the column k of the first one."""
    k_of = {row["id"]: row["k"] for row in rows["a"]}
    counts = Counter(k_of[ids[0]] for ids in find("abc", HALF, are_linked)(rows).elements())
    return Counter(counts.items())


# Conditions, for Spark and for the nested loop

NEAR = "abs(a.x - b.x) <= 2"
RARE = "a.k = b.k AND abs(a.x - b.x) <= 1"
LINKED = "a.k = b.k AND abs(b.x - c.x) <= 1"
WIDE_KEYS = "a.s = b.s AND a.d < b.d AND a.m >= b.m"
METRES = 300_000


def is_near(a: Row, b: Row) -> bool:
    return bool(abs(a["x"] - b["x"]) <= 2)


def is_rare(a: Row, b: Row) -> bool:
    return bool(a["k"] == b["k"] and abs(a["x"] - b["x"]) <= 1)


def are_linked(a: Row, b: Row, c: Row) -> bool:
    return bool(a["k"] == b["k"] and abs(b["x"] - c["x"]) <= 1)


def has_wide_keys(a: Row, b: Row) -> bool:
    return bool(a["s"] == b["s"] and a["d"] < b["d"] and Decimal(a["m"]) >= Decimal(b["m"]))


def is_within_metres(a: Row, b: Row) -> bool:
    lat, lon, other_lat, other_lon = (math.radians(row[name]) for row in (a, b) for name in "xy")
    h = math.sin((other_lat - lat) / 2) ** 2
    h += math.cos(lat) * math.cos(other_lat) * math.sin((other_lon - lon) / 2) ** 2
    return 2 * 6_371_008.8 * math.asin(math.sqrt(h)) <= METRES
