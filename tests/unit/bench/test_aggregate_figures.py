"""Figures of aggregation: views agree with the pairs, and updates are cut as the figure says."""

from pathlib import Path

import pyarrow as pa
import pytest

from bench.core.internals import Side
from bench.core.replay import run_epochs
from bench.core.rows import Rows
from bench.papers import inputs
from bench.papers.bistream import aggregate_bandwidth, aggregate_throughput
from bench.papers.bistream.aggregates import Merger, make_queries
from tests.support.figures import write_small
from thetastream.models import Biclique


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["aggregate-bandwidth", "aggregate-throughput"])
@pytest.mark.slow
def test_figures_of_aggregates(name: str, tmp_path: Path) -> None:
    write_small(name, 0.1, tmp_path)


@pytest.mark.parametrize("name", ["Q5", "Q7", "Band"])
def test_views_are_the_groups_of_the_pairs(name: str) -> None:
    asked, model = make_queries(0.1)[name], Biclique(2)
    merger, pairs = Merger(asked), []
    for _, found in run_epochs(asked.run(model), asked.query, 3):
        merger.merge(found)
    names = [
        f"{side}.{column}" for side, table in enumerate(asked.query.tables) for column in table.schema.names
    ]
    for _, found in run_epochs(asked.plain_run(model), asked.query, 3):
        pairs += [pa.table(dict(zip(names, columns, strict=True))) for columns in found]
    keys = [f"{int(side)}.{column}" for side, column in asked.fold.groups]
    measured = "1.quantity" if name == "Band" else "1.revenue"
    expected = pa.concat_tables(pairs).group_by(keys).aggregate([(measured, "count"), (measured, "sum")])
    value = expected.column(f"{measured}_{'count' if name == 'Band' else 'sum'}")
    (rows,) = merger.view.rows()
    groups = list(zip(*(rows.column(n).to_pylist() for n in range(len(keys))), strict=True))
    theirs = list(zip(*(expected.column(key).to_pylist() for key in keys), strict=True))
    assert dict(zip(groups, rows.column("m0").to_pylist(), strict=True)) == pytest.approx(
        dict(zip(theirs, value.to_pylist(), strict=True))
    )
    assert groups


@pytest.mark.parametrize(
    ("kept", "agrees"), [(0.95, "agrees"), (0.8, "agrees in part"), (0.6, "does not agree")]
)
def test_the_query_that_loses_most_decides(kept: float, agrees: str) -> None:
    rows = Rows()
    for query, share in (("Q5", 1.0), ("Q7", kept)):
        for setting in aggregate_throughput.MODELS:
            named = {"query": query, "setting": setting, "epoch_tuples": 16_000.0, "results_per_tuple": 0.1}
            rows.append({**named, "output": "pairs", "bound_tuples_per_s": 1e6, "cpu_us_per_tuple": 1.0})
            slower = {"bound_tuples_per_s": 1e6 * share, "cpu_us_per_tuple": 1.5}
            rows.append({**named, "output": "aggregated", **slower})
    verdict = aggregate_throughput.judge(rows)
    assert (verdict.agrees, verdict.ratio) == (agrees, pytest.approx(kept))
    assert rows[-1]["folding_ms"] == 0.5


def test_an_update_for_every_tuple_is_an_epoch_of_one_tuple() -> None:
    query = inputs.handshake(50, 1)
    for parts, sizes in ((0, [80, *[1] * 20]), (4, [80, 5, 5, 5, 5])):
        cuts = list(aggregate_bandwidth.cut(query, 20, parts))
        assert [sum(batch.num_rows for batch in batches) for batches in cuts] == sizes
        for side in Side:
            whole = pa.Table.from_batches([batches[side] for batches in cuts if batches[side].num_rows])
            assert whole.column("ts").equals(query.tables[side].column("ts"))
