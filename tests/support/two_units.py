"""Runs joins in this process of which a part of the condition is evaluated between two units."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tests.support.local_run import LocalRun
from tests.support.strategies import Case
from thetastream.core.columns import DECIDED
from thetastream.core.condition import Condition, SideSpec
from thetastream.core.how import How, Ranking
from thetastream.core.sides import Side
from thetastream.engine.answers.spec import CandidatesSpec, DecidingSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models.base import Model

Residual = Callable[[int, int], bool]
"""Whether the tuples with these ids pass the part of the condition that Spark evaluates."""


class TwoUnits:
    """The first and the second units of a join over a case, with a residual between them.

    The columns of the two streams have different names, as on Spark.
    """

    def __init__(
        self,
        case: Case,
        how: How,
        model: Model,
        residual: Residual,
        ranking: Ranking | None = None,
        make_run: Callable[[CandidatesSpec], LocalRun] = LocalRun,
        max_units: int = 0,
    ) -> None:
        self._case = case
        unit = UnitSpec(_tell_apart(case.condition), case.indexes, case.archive_period_us)
        spec = CandidatesSpec(TwoStreamSpec(unit, model), how, ranking)
        self.first = make_run(spec)
        self.second = LocalRun(DecidingSpec(spec, max_units))
        self._n_left = len(spec.columns.payload[0])
        payload = [pa.field(f.name, f.type) for side in Side for f in self.batch(side, []).schema]
        self._schema = pa.schema([*payload, *spec.columns.types.items()])
        self._residual = residual

    def batch(
        self, side: Side, rows: list[dict[str, Any]], more: Mapping[str, pa.Array] | None = None
    ) -> pa.RecordBatch:
        """Convert rows to a block of ``side``, with more columns behind the payload."""
        batch = self._case.batch(side, rows, more)
        names = batch.schema.names
        return batch.rename_columns([name if name in (more or {}) else _name(side, name) for name in names])

    def epoch(
        self, batches: Sequence[pa.RecordBatch | None], watermark_us: int | None = None
    ) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield the columns of answers."""
        yield from self.decide(self.first.epoch(batches, watermark_us))

    def decide(self, results: Iterable[list[pa.Array]]) -> Iterator[list[pa.Array]]:
        """Give the rows that the first units yield in an epoch to the second units, and yield the answers."""
        rows = [self._keep(columns) for columns in results]
        yield from self.second.epoch([pa.concat_batches(rows) if rows else None])

    def _keep(self, columns: list[pa.Array]) -> pa.RecordBatch:
        arrays = [column.cast(field.type) for column, field in zip(columns, self._schema, strict=True)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        decided, left, right = (
            rows.column(place).to_pylist()
            for place in (self._schema.get_field_index(DECIDED), 0, self._n_left)
        )
        kept = [
            side is not None or self._residual(a, b) for side, a, b in zip(decided, left, right, strict=True)
        ]
        return rows.filter(pa.array(kept, pa.bool_()))


def _name(side: Side, name: str) -> str:
    return f"{'ab'[side]}_{name}"


def _tell_apart(condition: Condition) -> Condition:
    """Give the columns of the two streams different names."""

    def rename(side: Side, spec: SideSpec) -> SideSpec:
        keys = tuple(replace(key, column=_name(side, key.column)) for key in spec.keys)
        time = None if spec.time is None else replace(spec.time, column=_name(side, spec.time.column))
        columns = tuple(_name(side, name) for name in spec.columns)
        return replace(spec, columns=columns, keys=keys, time=time)

    left, right = (rename(side, spec) for side, spec in zip(Side, condition.sides, strict=True))
    return replace(condition, sides=(left, right))
