"""Vectors of 384 floats that are similar, and the ten most similar: ``python -m bench similarity``.

    near      { (a, b) : cosine(a, b) >= 0.9 }
    top       { (a, b) : b is one of the 10 most similar of a, or ties with the last }
    many      { (a, b) : cosine(a, b) >= -1 }, 10,000 results for each left vector

*In this process*, by CPU time of one thread: the bare product of the matrices, the join by an index as units
run it, the join by a Python predicate over all pairs, and FAISS if it is installed: its exact index, and its
graph (HNSW) with the least effort that finds 99 % of the ten most similar, with the time to build it. *As a
query*: two streams in one epoch (near, many), and a batch DataFrame beside a table (top), beside a Python
predicate and beside Spark's own ``nearestByJoin``, which get fewer vectors because they compare pairs one by
one. The memory is the largest proportional set size of a Python worker. Answers are compared with products in
double precision. The exit code is 1 if one differs.
"""

import argparse
import contextlib
import importlib.util
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from bench.core import internals as inside
from bench.core import spark
from bench.core.clock import Clock
from bench.core.cpu_times import measure_cpu
from bench.core.publishing import publish_table
from bench.core.rows import Row, find_medians, measure_in_turn

FLOATS, K, LIMIT = 384, 10, 0.9
LIMITS = {"near": LIMIT, "many": -1.0}
WINDOW = 20_000
"""Vectors of each input."""
PREDICATE, OWN = 200, 100
"""Left vectors of a Python predicate, and of Spark's own join."""
MANY = 1_000, 10_000
"""Left and right vectors of the case with many results."""
TILE = 1024, 4096
FLAT, GRAPH = "FAISS, exact", "FAISS, HNSW with recall 0.99"
MARGIN = 1e-6
"""Values nearer than this to the limit, or to the tenth value, may differ in single precision."""
COSINE = "vector_cosine_similarity"
SHOWN = (
    "case; way|by; where; left|left vectors; right|right vectors; m_pairs_per_s|M pairs/s; seconds;"
    " cpu_s|CPU seconds; worker_mb|MB of a worker; results; is_correct|answer is correct"
)
Singles = npt.NDArray[np.float32]


def draw(n: int, seed: int) -> Singles:
    """Draw vectors near some centres, so that a few pairs in a hundred thousand are similar.

    The spectrum decays, as that of embeddings does.
    """
    random = np.random.default_rng([seed, n])
    scale = 1 / np.sqrt(1 + np.arange(FLOATS) / 16)
    centres = np.random.default_rng(seed).normal(size=(2_000, FLOATS)) * scale
    spread = random.choice([0.3, 1.0], size=(n, 1), p=[0.2, 0.8])
    vectors = (
        centres[random.integers(len(centres), size=n)] + random.normal(size=(n, FLOATS)) * scale * spread
    )
    return vectors.astype(np.float32)


def draw_inputs(n: int, seed: int) -> tuple[Singles, Singles]:
    """Draw the vectors of both inputs."""
    return draw(n, seed), draw(n + 1, seed)[:n]


@dataclass(frozen=True)
class Expected:
    """The numbers of results, as double precision tells them."""

    least: int
    most: int

    def has(self, n: int) -> bool:
        """Whether a number of results is possible."""
        return self.least <= n <= self.most


def normalise(vectors: Singles) -> npt.NDArray[np.float64]:
    """Scale vectors to the length 1."""
    doubles = vectors.astype(np.float64)
    return doubles / np.linalg.norm(doubles, axis=1, keepdims=True)


def count_results(case: str, left: Singles, right: Singles) -> Expected:
    """Count the results by products in double precision."""
    least = most = 0
    x, y = normalise(left), normalise(right)
    step = max(1, TILE[0] * TILE[1] // len(y))
    for start in range(0, len(x), step):
        values = x[start : start + step] @ y.T
        limit: Any = LIMITS[case] if case != "top" else np.partition(values, -K, axis=1)[:, -K][:, None]
        least += int((values >= limit + MARGIN).sum()) if case != "top" else K * len(values)
        most += int((values >= limit - MARGIN).sum())
    return Expected(least, most)


# In this process


def multiply(left: Singles, right: Singles) -> None:
    """Compute all products by tiles, and read none of them."""
    x, y = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (left, right))
    for start in range(0, len(x), TILE[0]):
        for first in range(0, len(y), TILE[1]):
            _ = x[start : start + TILE[0]] @ y[first : first + TILE[1]].T


def make_block(vectors: Singles) -> pa.RecordBatch:
    """Make a block of vectors with their numbers."""
    offsets = np.arange(len(vectors) + 1, dtype=np.int32) * FLOATS
    lists = pa.ListArray.from_arrays(offsets, vectors.ravel())
    return pa.RecordBatch.from_pydict({"id": np.arange(len(vectors)), "v": lists})


def describe_lookup(case: str, is_indexed: bool) -> inside.Lookup:
    """Describe the join of a case by the index of measures, or by a Python predicate over all pairs."""
    measure = inside.MEASURES[COSINE]
    sides = inside.SideSpec("a", ("id",)), inside.SideSpec("b", ("id",))
    limit = inside.MeasuredPair(("v", "v"), inside.MeasureLimit(measure, ">=", LIMIT))
    ranked = inside.RankedPair(K, ("v", "v"), measure, is_descending=True)
    condition, how, ranking = inside.Condition(sides), inside.INNER, None
    if case == "top":
        condition = inside.Condition(sides, ranked=ranked)
        how = inside.find_nearest(th.Nearest(K, by=f"{COSINE}(a.v, b.v)", direction="similarity"))
        ranking = inside.MeasuredRanking(ranked)
    elif is_indexed:
        condition = inside.Condition(sides, predicates=(limit.check,), measured=(limit,))
    else:
        columns = (("v", "v"),), (("v", "v"),)
        predicate = inside.PythonPredicate("near", is_near, ("a", "b"), columns)
        condition = inside.Condition(sides, predicates=(predicate,))
    shape = inside.SHAPES["tiles" if is_indexed else "scan"]
    return inside.Lookup(
        inside.IndexPlan(condition, inside.Side.RIGHT, inside.IndexSpec(shape)), how, ranking
    )


def is_near(a: Any, b: Any) -> npt.NDArray[np.bool_]:
    """Compute the cosine of each candidate, as a user would write it with NumPy."""
    x, y = (np.asarray(side.v.flatten()).reshape(-1, FLOATS) for side in (a, b))
    products = np.einsum("ij,ij->i", x, y)
    near: npt.NDArray[np.bool_] = products >= LIMIT * np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    return near


def look_up(lookup: inside.Lookup, left: Singles, right: Singles) -> int:
    """Look vectors up in others, and count the results."""
    block = make_block(right)
    table = inside.TableRuns([inside.build(lookup.plan, block)], block.schema)
    probes = make_block(left)
    return sum(len(columns[0]) for columns in lookup.answer(probes, table))


def measure_here(case: str, way: str, left: Singles, right: Singles, seed: int, expected: Expected) -> Row:
    """Measure one way in this process, by CPU time."""
    effort = choose_effort(len(right), seed) if way == GRAPH else 0
    before_s, before_cpu_s = time.perf_counter(), time.process_time()
    n = None
    if way == "bare product":
        multiply(left, right)
    elif way == FLAT:
        n = search_faiss(case, left, right)
    elif way == GRAPH:
        n = search_graph(effort, left, right)
    else:
        n = look_up(describe_lookup(case, way == "an index"), left, right)
    cpu_s, seconds = time.process_time() - before_cpu_s, time.perf_counter() - before_s
    return {
        "m_pairs_per_s": len(left) * len(right) / cpu_s / 1e6,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "results": n,
        "is_correct": n is None or expected.has(n),
    }


def has_faiss() -> bool:
    """Whether FAISS is installed."""
    return importlib.util.find_spec("faiss") is not None


def open_faiss(right: Singles, is_graph: bool = False) -> Any:
    """Put vectors into an index of FAISS, on one thread."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(FLOATS)
    if is_graph:
        index = faiss.IndexHNSWFlat(FLOATS, 32, faiss.METRIC_INNER_PRODUCT)
    index.add(normalise(right).astype(np.float32))
    return index


def search_faiss(case: str, left: Singles, right: Singles) -> int:
    """Count the results by the exact index of FAISS."""
    index, probes = open_faiss(right), normalise(left).astype(np.float32)
    if case == "near":
        return int(index.range_search(probes, LIMIT)[0][-1])
    return int(index.search(probes, K)[1].size)


@cache
def choose_effort(n: int, seed: int) -> int:
    """Find the least effort of the graph, a power of two, with which it finds 99 % of the most similar."""
    left, right = draw_inputs(n, seed)
    probes = normalise(left[:1000]).astype(np.float32)
    wanted, graph = open_faiss(right).search(probes, K)[1], open_faiss(right, is_graph=True)
    for effort in (2**power for power in range(4, 14)):
        graph.hnsw.efSearch = effort
        found = graph.search(probes, K)[1]
        if sum(len({*a} & {*b}) for a, b in zip(wanted, found, strict=True)) >= 0.99 * wanted.size:
            return effort
    raise RuntimeError("the graph does not find 99 % of the most similar")


def search_graph(effort: int, left: Singles, right: Singles) -> int:
    """Count the results by the graph of FAISS."""
    graph = open_faiss(right, is_graph=True)
    graph.hnsw.efSearch = effort
    return int(graph.search(normalise(left).astype(np.float32), K)[1].size)


# As a query


class WorkerMemory:
    """Watches the largest proportional set size of a Python worker below this process."""

    def __enter__(self) -> "WorkerMemory":
        self.peak, self._is_open = 0, True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self._thread.join()

    def _watch(self) -> None:
        while self._is_open:
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if child.name().startswith("python"):
                        self.peak = max(self.peak, child.memory_full_info().pss)
            time.sleep(0.2)


def make_table(vectors: Singles) -> pa.Table:
    """Make a table of vectors with event times."""
    times = pa.array(np.arange(len(vectors)) * 1000, pa.timestamp("us", "UTC"))
    return pa.Table.from_batches([make_block(vectors)]).append_column("ts", times)


@th.predicate(a=["v"], b=["v"])
def near(a: Any, b: Any) -> npt.NDArray[np.bool_]:
    """Call ``is_near`` as a user does."""
    return is_near(a, b)


def join_streams(session: SparkSession, files: Path, case: str, is_indexed: bool) -> DataFrame:
    """Join two streams of similar vectors. Their results have all columns, so each has two vectors."""
    streams = spark.streams(session, files, "ab")
    on: Any = f"{COSINE}(a.v, b.v) >= {LIMITS[case]}" if is_indexed else [near]
    return th.join(streams, on=on, within="1 hour")


def find_top(left: DataFrame, right: DataFrame, way: str) -> DataFrame:
    """Find the ten most similar vectors of a batch."""
    if way == "Spark":
        call = F.call_function(COSINE, left.v, right.v)
        return left.nearestByJoin(right, call, K, "exact", "similarity").select(left.id, right.id)
    how = th.Nearest(K, by=f"{COSINE}(a.v, b.v)", direction="similarity")
    joined = th.join({"a": left, "b": right}, on="true", how=how, result_time=False)
    return joined.selectExpr("a.id", "b.id AS other")


def measure_query(run: Callable[[], int], n_pairs: int, expected: Expected) -> Row:
    """Measure a query: seconds, CPU seconds of all processes, and the memory of a worker."""
    before, before_s = measure_cpu(), time.perf_counter()
    with WorkerMemory() as memory:
        n = run()
    seconds, spent = time.perf_counter() - before_s, measure_cpu().since(before)
    return {
        "m_pairs_per_s": n_pairs / spent.warm_s / 1e6,
        "seconds": seconds,
        "cpu_s": spent.warm_s,
        "worker_mb": memory.peak / 1e6,
        "results": n,
        "is_correct": expected.has(n),
    }


def run_stream(session: SparkSession, files: Path, case: str = "near", is_indexed: bool = True) -> int:
    """Run a join of two streams to its end, and count its results."""
    with tempfile.TemporaryDirectory(prefix="bench-similarity-") as checkpoint:
        joined = join_streams(session, files, case, is_indexed)
        running = spark.start(joined, checkpoint, [F.count(F.lit(1)).alias("rows")])
        running.awaitTermination()
        return sum(epoch.results for epoch in spark.epochs(running))


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if an answer is wrong."""
    n = asked.window or WINDOW
    left, right = draw_inputs(n, asked.seed)
    look_up(describe_lookup("top", True), left[:100], right[:5000])  # loads kernels
    look_up(describe_lookup("near", True), left[:100], right[:5000])
    points: dict[tuple[str, str, str], tuple[int, int, Callable[[], Row]]] = {}
    expected: dict[tuple[str, int], Expected] = {}

    def add(
        case: str, way: str, where: str, n_left: int, measure: Callable[[Expected], Row], n_right: int = n
    ) -> None:
        if (case, n_left) not in expected:
            expected[case, n_left] = count_results(case, left[:n_left], right[:n_right])
        points[case, way, where] = n_left, n_right, partial(measure, expected[case, n_left])

    here = [("near", "bare product"), ("near", "an index"), ("near", "a predicate"), ("top", "an index")]
    if has_faiss():
        here += [("near", FLAT), ("top", FLAT), ("top", GRAPH)]
    for case, way in here:
        n_left = min(n, PREDICATE) if way == "a predicate" else n
        run_here = partial(measure_here, case, way, left[:n_left], right, asked.seed)
        add(case, way, "one thread", n_left, run_here)
    with contextlib.closing(Clock()) as clock:
        session = clock.session()
        announce("warming up")
        few = right[:1000]
        files = clock.files("similarity-warm-up", partial(dict, a=[make_table(few)], b=[make_table(few)]))
        run_stream(session, files)
        warm = session.createDataFrame(make_table(few)).localCheckpoint()
        find_top(warm, warm, "an index").count()
        table = session.createDataFrame(make_table(right)).localCheckpoint()
        for way, n_left in (("an index", n), ("a predicate", min(n, PREDICATE))):
            parts = {"a": [make_table(left[:n_left])], "b": [make_table(right)]}
            files = clock.files(f"similarity-{n_left}-{n}", partial(dict, parts))
            run = partial(run_stream, session, files, "near", way == "an index")
            add("near", way, "two streams", n_left, partial(measure_query, run, n_left * n))
        n_left, n_right = (min(n, most) for most in MANY)
        parts = {"a": [make_table(left[:n_left])], "b": [make_table(right[:n_right])]}
        files = clock.files(f"similarity-many-{n_left}-{n_right}", partial(dict, parts))
        many = partial(measure_query, partial(run_stream, session, files, "many"), n_left * n_right)
        add("many", "an index", "two streams", n_left, many, n_right)
        for way, n_left in (("an index", n), ("Spark", min(n, OWN))):
            rows = session.createDataFrame(make_table(left[:n_left])).localCheckpoint()
            found = partial(find_top, rows, table, way)
            add(
                "top",
                way,
                "a batch query",
                n_left,
                partial(measure_query, lambda f=found: f().count(), n_left * n),
            )

        def run_point(key: Any, turn: str) -> Row:
            row = points[key][2]()
            announce(f"{turn}: {row['m_pairs_per_s']:,.2f} M pairs/s, {row['seconds']:.1f} s")
            return row

        runs = measure_in_turn(points, asked.repeat, run_point)
    rows = []
    for (case, way, where), found in runs.items():
        medians = find_medians(found, [name for name in found[0] if name != "is_correct"])
        n_left, n_right, _ = points[case, way, where]
        more = {"case": case, "way": way, "where": where, "left": n_left, "right": n_right}
        rows.append({**more, **medians, "is_correct": all(row["is_correct"] for row in found)})
    head = (
        f"Vectors of {FLOATS} floats: cosine >= {LIMIT} (near), the {K} most similar (top), and all pairs"
        f" (many). Pairs are counted by CPU time, medians of {asked.repeat}, seed {asked.seed}."
    )
    return publish_table(head, SHOWN, rows, asked)
