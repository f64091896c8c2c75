"""Sets, texts and masks of bits that are near each other: ``python -m bench distances``.

    sets     Jaccard similarity >= 0.7 of 8 to 40 words out of 50,000, of which few are frequent
    texts    edit distance <= 2 of names of 6 to 22 characters
    bits     Hamming distance <= 3 of masks of 64 bits, such as SimHash

Each left value is compared with each right one, on one thread and without Spark: by an index, as units and
tables do it, by DuckDB, and by a library (NumPy for bits, and rapidfuzz for texts if it is installed). The
others get fewer left values, because they compare all pairs. All must find the same pairs. Pairs are counted
by CPU time. The exit code is 1 if an answer differs.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.core import internals as inside
from bench.core.publishing import publish_table
from bench.core.rows import Row, find_medians, measure_in_turn

WINDOW = 20_000
"""Values of each input."""
FEW = 400
"""Left values of DuckDB and of the libraries."""
SHOWN = (
    "case; way|by; left|left values; right|right values; m_pairs_per_s|M pairs/s; seconds; results;"
    " of_index|the index is so many times as fast; is_correct|answers are equal"
)
Random = np.random.Generator
Found = tuple[int, int]
"""The number of pairs, and a checksum of them."""


@dataclass(frozen=True)
class Case:
    """Values, and how they are compared."""

    name: str
    measure: str
    op: str
    limit: float
    draw: Callable[[Random, int], pa.Array]
    duckdb: str
    """The comparison in DuckDB."""
    library: str | None = None
    compare: Callable[[pa.Array, pa.Array], npt.NDArray[np.bool_]] | None = None
    """The comparison by a library: a matrix of left and right values."""


def draw_sets(random: Random, n: int) -> pa.Array:
    """Draw sets of words. A third of them is a set of few, with a few words changed."""
    centres = [_draw_words(np.random.default_rng(number)) for number in range(n // 20 + 1)]
    found = []
    for _ in range(n):
        words = centres[random.integers(len(centres))] if random.random() < 0.3 else _draw_words(random)
        kept = words[random.random(len(words)) > 0.1]
        found.append(np.unique(np.append(kept, _draw_words(random)[: random.integers(0, 3)])))
    return pa.array(found, pa.list_(pa.int32()))


def _draw_words(random: Random) -> npt.NDArray[np.int32]:
    frequency = random.random(random.integers(8, 41)) ** 3
    return np.unique((frequency * 50_000).astype(np.int32))


def draw_texts(random: Random, n: int) -> pa.Array:
    """Draw names of two parts. Some have an edit or two."""
    letters = np.array([*"aeiouaeioulnrstdmkbgphcfw"])
    parts = ["".join(np.random.default_rng(one).choice(letters, 3 + one % 9)) for one in range(2_000)]
    found = []
    for _ in range(n):
        name = [*f"{parts[random.integers(2_000)]} {parts[random.integers(200)]}"]
        for _ in range(random.integers(0, 3)):
            name[random.integers(len(name))] = str(random.choice(letters))
        found.append("".join(name))
    return pa.array(found)


def draw_bits(random: Random, n: int) -> pa.Array:
    """Draw masks. A third of them is one of few, with up to three bits changed."""
    centres = np.random.default_rng(0).integers(0, 2**63, n // 20 + 1)
    words = np.where(
        random.random(n) < 0.3, centres[random.integers(len(centres), size=n)], random.integers(0, 2**63, n)
    )
    for _ in range(3):
        words ^= np.where(random.random(n) < 0.5, 1 << random.integers(0, 62, n), 0)
    return pa.array(words)


def compare_texts(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    """Compare texts by rapidfuzz."""
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    texts = left.to_pylist(), right.to_pylist()
    found = process.cdist(*texts, scorer=Levenshtein.distance, score_cutoff=2, workers=1, dtype=np.uint8)
    near: npt.NDArray[np.bool_] = found <= 2
    return near


def compare_bits(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    """Compare masks by NumPy."""
    x, y = (column.to_numpy().view(np.uint64) for column in (left, right))
    near: npt.NDArray[np.bool_] = np.bitwise_count(x[:, None] ^ y) <= 3
    return near


CASES = (
    Case(
        "sets: Jaccard similarity >= 0.7",
        "jaccard",
        ">=",
        0.7,
        draw_sets,
        "len(list_intersect(a.v, b.v)) / len(list_distinct(list_concat(a.v, b.v))) >= 0.7",
    ),
    Case(
        "texts: edit distance <= 2",
        "levenshtein",
        "<=",
        2,
        draw_texts,
        "levenshtein(a.v, b.v) <= 2",
        "rapidfuzz",
        compare_texts,
    ),
    Case(
        "bits: Hamming distance <= 3",
        "bit_count",
        "<=",
        3,
        draw_bits,
        "bit_count(xor(a.v, b.v)) <= 3",
        "NumPy",
        compare_bits,
    ),
)


def add_up(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> Found:
    """Add the numbers of pairs up."""
    return len(left), int((left * 31 + right * 17).sum())


def look_up(case: Case, left: pa.Array, right: pa.Array) -> Found:
    """Compare by an index, with all that is made of the values for it."""
    limit = inside.MeasuredPair(
        ("v", "v"), inside.MeasureLimit(inside.MEASURES[case.measure], case.op, case.limit)
    )
    sides = inside.SideSpec("a", ("id",)), inside.SideSpec("b", ("id",))
    condition = inside.Condition(sides, predicates=(limit.check,), measured=(limit,))
    plan = inside.IndexPlan(condition, inside.Side.RIGHT, inside.IndexSpec(inside.SHAPES["tiles"]))
    probes, stored = (
        pa.RecordBatch.from_pydict({"id": np.arange(len(one)), "v": one}) for one in (left, right)
    )
    table = inside.TableRuns([inside.build(plan, stored)], stored.schema)
    found = [columns[:2] for columns in inside.Lookup(plan, inside.INNER).answer(probes, table)]
    mine, theirs = (
        np.concatenate([np.zeros(0, np.int64), *(one[n].to_numpy() for one in found)]) for n in (0, 1)
    )
    return add_up(mine, theirs)


def ask_duckdb(case: Case, left: pa.Array, right: pa.Array) -> Found:
    """Compare by DuckDB on one thread."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    for name, values in (("a", left), ("b", right)):
        connection.register(f"given_{name}", pa.table({"id": np.arange(len(values)), "v": values}))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{name}")
    sql = f"SELECT count(*), coalesce(sum(a.id * 31 + b.id * 17), 0) FROM a JOIN b ON {case.duckdb}"
    ((n, total),) = connection.execute(sql).fetchall()
    return int(n), int(total)


def ask_library(case: Case, left: pa.Array, right: pa.Array) -> Found:
    """Compare by a library, some left values at a time."""
    assert case.compare is not None
    found = [np.zeros((2, 0), dtype=np.int64)]
    for start in range(0, len(left), 100):
        mine, theirs = np.nonzero(case.compare(left.slice(start, 100), right))
        found.append(np.stack([mine + start, theirs]))
    return add_up(*np.concatenate(found, axis=1))


def measure(run: Callable[[], Found], n_pairs: int) -> Row:
    """Measure a way by its CPU time."""
    before_s, before_cpu_s = time.perf_counter(), time.process_time()
    n, total = run()
    cpu_s = time.process_time() - before_cpu_s
    return {
        "m_pairs_per_s": n_pairs / cpu_s / 1e6,
        "seconds": time.perf_counter() - before_s,
        "results": n,
        "checksum": total,
    }


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if an answer is wrong."""
    n, few = asked.window or WINDOW, min(asked.window or WINDOW, FEW)
    rows: list[Row] = []
    for case in CASES:
        left, right = (case.draw(np.random.default_rng([asked.seed, side]), n) for side in (0, 1))
        look_up(case, left[:few], right)  # loads kernels
        ways: dict[str, tuple[int, Callable[[], Found]]] = {
            "an index": (n, partial(look_up, case, left, right)),
            "DuckDB": (few, partial(ask_duckdb, case, left[:few], right)),
        }
        if case.library is not None and importlib.util.find_spec(case.library.lower()) is not None:
            ways[case.library] = few, partial(ask_library, case, left[:few], right)
        expected = {n: look_up(case, left, right), few: look_up(case, left[:few], right)}

        def run(way: str, turn: str, ways: dict[str, tuple[int, Callable[[], Found]]] = ways) -> Row:
            row = measure(ways[way][1], ways[way][0] * n)
            announce(f"{turn}: {row['m_pairs_per_s']:,.2f} M pairs/s, {row['seconds']:.1f} s")
            return row

        measured = measure_in_turn(ways, asked.repeat, run)
        fastest = find_medians(measured["an index"])["m_pairs_per_s"]
        for way, found in measured.items():
            median = find_medians(found)
            answers = {(row["results"], row["checksum"]) for row in found}
            rows.append(
                {
                    "case": case.name,
                    "way": way,
                    "left": ways[way][0],
                    "right": n,
                    **median,
                    "of_index": None if way == "an index" else fastest / median["m_pairs_per_s"],
                    "is_correct": answers == {expected[ways[way][0]]},
                }
            )
    head = f"One thread, without Spark, medians of {asked.repeat}, seed {asked.seed}. CPU time counts."
    return publish_table(head, SHOWN, rows, asked)
