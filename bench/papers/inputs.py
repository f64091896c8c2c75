"""Makes the tables of BiStream's and SplitJoin's figures.

Band   BiStream's band query: lineitem with itself, |orderkey - orderkey| <= 1.
Q5     the most expensive join of TPC-H Q5: (region join nation join supplier) with lineitem on suppkey.
Q7     the same of Q7: (nation join supplier) with lineitem of two years on suppkey.

As in the papers that set these queries, what stands before the most expensive join is computed first and
streamed in, and conditions on one table filter before the join. The generator's order of rows is the order
of the stream.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from bench.core import data
from bench.core.internals import Domain, Equality, Key
from bench.core.query import Query, band, keys, stamp
from bench.core.workloads import WORKLOADS

SCALE_FACTOR = 0.1
"""The scale factor of TPC-H at ``--scale 1``, which gives 600,000 tuples of lineitem."""
TABLES = "region,nation,supplier,lineitem"


def generate(scale_factor: float) -> Path:
    """Write the TPC-H tables that the queries read with tpchgen-cli, once, and return their folder."""
    folder = data.ROOT / f"tpch-figures-sf{scale_factor:g}"
    if not folder.exists():
        program = shutil.which("tpchgen-cli", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        if program is None:
            raise FileNotFoundError("tpchgen-cli is not installed: pip install 'thetastream[bench]'")
        data.ROOT.mkdir(parents=True, exist_ok=True)
        draft = tempfile.mkdtemp(dir=data.ROOT)
        options = ["-s", f"{scale_factor:g}", f"--tables={TABLES}", f"--output-dir={draft}"]
        subprocess.run([program, "parquet", *options], check=True, capture_output=True)
        Path(draft).rename(folder)
    return folder


@lru_cache
def _select(scale: float, sql: str) -> pa.Table:
    folder = generate(SCALE_FACTOR * scale)
    connection = duckdb.connect(config={"threads": 2, "preserve_insertion_order": True})
    for name in TABLES.split(","):
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{folder}/{name}.parquet')")
    return stamp(connection.sql(sql).to_arrow_table().combine_chunks())


@lru_cache
def lineitem_band(scale: float, of_nation: bool = False) -> Query:
    """Join lineitem of large quantity by truck with lineitem without instructions, of neighbouring orders.

    With ``of_nation``, left tuples have the nation of their supplier.
    """
    columns = (
        "l_orderkey AS orderkey, l_linenumber AS line, l_quantity::DOUBLE AS quantity, l_shipdate AS day"
    )
    large, no_instructions = "l_shipmode = 'TRUCK' AND l_quantity > 48", "l_shipinstruct = 'NONE'"
    nations = (
        "SELECT l_orderkey AS orderkey, n_name AS nation FROM lineitem JOIN supplier ON l_suppkey = s_suppkey"
        f" JOIN nation ON s_nationkey = n_nationkey WHERE {large} ORDER BY orderkey, l_linenumber"
    )
    select = f"SELECT {columns} FROM lineitem WHERE"
    left = _select(scale, nations if of_nation else f"{select} {large}")
    right = _select(scale, f"{select} {no_instructions}")
    on = "abs(l.orderkey - r.orderkey) <= 1"
    return Query("Band", ("l", "r"), (left, right), on, keys("orderkey"), dimensions=(band(0, 1),))


def q5(scale: float) -> Query:
    """Join suppliers of a region with lineitem."""
    region = "JOIN region ON n_regionkey = r_regionkey WHERE r_name = 'ASIA' ORDER BY suppkey"
    return _by_supplier("Q5", scale, region, "")


def q7(scale: float) -> Query:
    """Join suppliers of two nations with lineitem of two years."""
    years = "WHERE l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'"
    return _by_supplier("Q7", scale, "WHERE n_name IN ('FRANCE', 'GERMANY') ORDER BY suppkey", years)


@lru_cache
def _by_supplier(name: str, scale: float, suppliers: str, lines: str) -> Query:
    left = (
        "SELECT s_suppkey AS suppkey, n_name AS nation, s_acctbal::DOUBLE AS balance FROM supplier"
        f" JOIN nation ON s_nationkey = n_nationkey {suppliers}"
    )
    right = (
        "SELECT l_suppkey AS suppkey, l_orderkey AS orderkey, l_extendedprice::DOUBLE AS price,"
        f" l_discount::DOUBLE AS discount, l_shipdate AS day FROM lineitem {lines}"
    )
    tables = (_select(scale, left), _select(scale, right))
    on = "s.suppkey = l.suppkey"
    return Query(name, ("s", "l"), tables, on, keys("suppkey"), equalities=(Equality(0, 0),))


TPCH: dict[str, Callable[[float], Query]] = {"Q5": q5, "Q7": q7, "Band": lineitem_band}


@lru_cache
def handshake(n: int, seed: int, reach: int = 10) -> Query:
    """Make the two-dimensional band of SplitJoin's evaluation, with ``n`` tuples of each stream.

    A pair matches with probability (2 * reach + 1) / 9999 * 2 * reach / 9999.
    """
    spec = WORKLOADS["handshake"]
    left, right = (
        stamp(pa.table(spec.draw[side](np.random.default_rng([seed, side]), n, n))) for side in (0, 1)
    )
    on, duckdb_on = (
        text.replace("-10", f"-{reach}").replace("+10", f"+{reach}") for text in (spec.on, spec.duckdb_on)
    )
    return Query(
        "handshake",
        spec.aliases,
        (left, right),
        on,
        ((Key("x", Domain.INT), Key("y", Domain.FLOAT)), (Key("a", Domain.INT), Key("b", Domain.FLOAT))),
        dimensions=(band(0, reach), band(1, float(reach))),
        duckdb_on=duckdb_on,
        seed=seed,
    )


def zipf(n: int, exponent: float, seed: int, values: int = 10_000, results: float = 2.0) -> Query:
    """Draw keys by Zipf's law on both sides, with a band on a value that keeps ``results`` results a tuple.

    Without the band, the heavy keys would give most of the output, and the load would be the output.
    """
    weights = np.arange(1, values + 1, dtype=float) ** -exponent
    weights /= weights.sum()
    # The keys of two random tuples are equal with this probability. |u - v| <= d holds with 2d - d².
    meets = float((weights**2).sum())
    reach = 1 - max(0.0, 1 - min(1.0, results / (n * meets))) ** 0.5
    delta = max(1, round(reach * 1_000_000))
    tables = []
    for side in (0, 1):
        random = np.random.default_rng([seed, side, 7])
        # The names of keys are shuffled, so that the heavy keys are not the small numbers.
        names = np.random.default_rng(seed).permutation(values)
        k = names[random.choice(values, n, p=weights)]
        v = np.floor(random.uniform(0, 1_000_000, n)).astype(np.int64)
        tables.append(stamp(pa.table({"k": pa.array(k), "v": pa.array(v)})))
    return Query(
        f"Zipf {exponent:g}",
        ("l", "r"),
        (tables[0], tables[1]),
        f"l.k = r.k AND abs(l.v - r.v) <= {delta}",
        keys("k", "v"),
        equalities=(Equality(0, 0),),
        dimensions=(band(1, delta),),
        seed=seed,
    )
