"""Random cases of outer, semi and anti joins: fitting models, blocks with failing tuples, timely tuples."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.support import oracle
from tests.support.answers import Answer
from tests.support.local_run import LocalRun
from tests.support.strategies import Case
from tests.support.two_units import TwoUnits
from thetastream.core.columns import PASSES
from thetastream.core.condition import Condition
from thetastream.core.errors import QueryError
from thetastream.core.how import HOWS, How
from thetastream.core.sides import Side
from thetastream.engine.clock import BATCH, Clock
from thetastream.engine.two_stream.content_routing import choose_placing
from thetastream.models import Matrix, Split
from thetastream.models.base import Model

ANSWERING = {name: how for name, how in HOWS.items() if not how.is_inner}
END = 10_000


def models(how: How, condition: Condition) -> st.SearchStrategy[Model]:
    every = [Matrix(1, 1), Matrix(3, 1), Matrix(1, 3), Split(1), Matrix(3, 1, 2), Matrix(1, 3, 3)]
    every += [
        Matrix(3, 1, 3, "hash"),
        Matrix(1, 2, 2, "hash"),
        Matrix(3, 3, 3, "hash"),
        Matrix(4, 1, 3, "range"),
    ]
    fitting = [model for model in every if all(map(model.sees_partners, how.preserved))]
    return st.sampled_from([model for model in fitting if is_routable(model, condition)])


def is_routable(model: Model, condition: Condition) -> bool:
    try:
        choose_placing(model, condition)
    except QueryError:
        return False
    return True


def count_columns(condition: Condition) -> list[int]:
    return [len(side.columns) for side in condition.sides]


def read(how: How, columns: list[pa.Array], widths: Sequence[int]) -> Iterator[Answer]:
    """Read answers. ``widths`` has the number of columns of each stream, of which the first is the id."""
    starts = [0, *accumulate(widths[side] for side in how.shown)]
    assert len(columns) == starts[-1] + len(how.padded)
    ids = {side: columns[start].to_pylist() for side, start in zip(how.shown, starts, strict=False)}
    for side, flag in zip(how.padded, columns[starts[-1] :], strict=True):
        assert flag.to_pylist() == [id_ is not None for id_ in ids[side]]
    yield from zip(
        ids.get(Side.LEFT, [None] * len(columns[0])),
        ids.get(Side.RIGHT, [None] * len(columns[0])),
        strict=True,
    )


def run_epochs(
    run: LocalRun | TwoUnits,
    make_batch: Callable[..., pa.RecordBatch],
    case: Case,
    how: How,
    passes: dict[Any, bool],
) -> Iterator[Counter[Answer]]:
    """Run the epochs of the case and one epoch whose watermark decides every tuple.

    ``make_batch`` makes a block of a side from rows, with more columns, as ``Case.batch`` does.
    """
    for left, right, watermark in [*case.epochs, ([], [], END)]:
        batches = []
        for side, rows in zip(Side, (left, right), strict=True):
            if side in how.preserved:
                batches.append(make_batch(side, rows, {PASSES: flag_passing(rows, passes)}))
            else:
                batches.append(make_batch(side, [row for row in rows if passes[row["id"]]]))
        yield count_answers(case, how, run.epoch(batches, watermark))


def flag_passing(rows: list[dict[str, Any]], passes: dict[Any, bool]) -> pa.Array:
    return pa.array([1 if passes[row["id"]] else None for row in rows], pa.int8())


def drawn_passes(data: st.DataObject, case: Case) -> dict[Any, bool]:
    rows = [row for left, right, _ in case.epochs for row in (*left, *right)]
    failing = data.draw(st.sets(st.sampled_from([row["id"] for row in rows]), max_size=4)) if rows else set()
    return {row["id"]: row["id"] not in failing for row in rows}


def keep_timely(case: Case) -> tuple[list[oracle.Row], list[oracle.Row]]:
    kept: tuple[list[oracle.Row], list[oracle.Row]] = ([], [])
    for left, right, late_us in oracle.pair_with_late_watermark(case.epochs):
        for side, rows in zip(Side, (left, right), strict=True):
            kept[side].extend(oracle.timely(rows, late_us, "t"))
    return kept


def count_answers(case: Case, how: How, answers: Iterable[list[pa.Array]]) -> Counter[Answer]:
    """Count the answers of an epoch, which units yield as columns."""
    found = Counter[Answer]()
    for columns in answers:
        found.update(read(how, columns, count_columns(case.condition)))
    return found


def gather_rows(case: Case) -> tuple[list[oracle.Row], list[oracle.Row]]:
    """Gather the left and the right rows of all epochs."""
    left: list[oracle.Row] = []
    right: list[oracle.Row] = []
    for mine, others, _ in case.epochs:
        left.extend(mine)
        right.extend(others)
    return left, right


def make_last(run: LocalRun) -> None:
    """Give the next epoch the clock of batch DataFrames."""
    run._clock = _BeforeBatch()  # type: ignore[assignment]


class _BeforeBatch:
    def then(self, watermark_us: int | None) -> Clock:
        return BATCH
