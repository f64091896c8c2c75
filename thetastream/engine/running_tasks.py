"""Join tasks that are added while their query runs, as plain values of JSON.

    WrittenJoin  <->  TaskSpec             a join without a model, which is that of all tasks

Requests, the control plan, and the state of units hold tasks in this form. It has no code: comparisons that
units decide have names and numbers, and an index shape has a name of the registry. A Python function has no
such form, so a task with one can only be a task of the program.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.condition import (
    TIME,
    VALUE,
    Condition,
    Dimension,
    Domain,
    Equality,
    ExactBand,
    ExactOrder,
    PythonPredicate,
    SideSpec,
    compute_lifetime_us,
)
from thetastream.core.keys import encode
from thetastream.core.sides import Side
from thetastream.index import REGISTRY, IndexSpec

_COMPARE = {
    "=": (np.equal, pc.equal),
    "<>": (np.not_equal, pc.not_equal),
    "<": (np.less, pc.less),
    "<=": (np.less_equal, pc.less_equal),
    ">": (np.greater, pc.greater),
    ">=": (np.greater_equal, pc.greater_equal),
}
"""For each operator, the functions that compare encoded keys, and texts."""
_ORDERS = ("=", "<", "<=", ">", ">=")
IS_NULL = "IS NULL"


@dataclass(frozen=True)
class ColumnTest:
    """A condition on one block column, which a unit decides as Spark does.

    Examples
    --------
    >>> column = pa.array([3, None, 5])
    >>> ColumnTest("c0").decide(column).tolist()
    [True, False, True]
    >>> ColumnTest("c0", ">", Domain.INT, 4).decide(column).tolist()
    [False, False, True]
    """

    column: str
    op: str | None = None
    """The operator of a comparison with ``value``, or ``IS_NULL``. Without one, the column must not be NULL,
    and it must be true if it is a boolean that routers have computed."""
    domain: Domain | None = None
    """How the values are compared: as keys of this domain."""
    value: int | float | str | None = None
    """The constant. A text is compared by its bytes. A decimal number is an integer, in the scale of the
    column."""
    is_flag: bool = False
    """Whether the column says of each tuple whether it passes filters."""

    def check(self) -> None:
        """Check that the operator and the constant fit each other; raise ValueError if not."""
        if self.op in (None, IS_NULL):
            return
        is_text = self.domain is None and isinstance(self.value, str)
        is_number = self.domain in (Domain.INT, Domain.FLOAT) and isinstance(self.value, int | float)
        is_number |= self.domain is Domain.DECIMAL and isinstance(self.value, int)
        if self.op not in _COMPARE or not (is_text or is_number):
            raise ValueError(f"units cannot decide {self}")

    def decide(self, column: pa.Array) -> npt.NDArray[np.bool_]:
        """Return for each value whether the condition is true. It is not true for NULL."""
        if self.is_flag:
            return np.asarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False))
        is_valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        if self.op is None:
            return is_valid
        if self.op == IS_NULL:
            return ~is_valid
        compare_keys, compare_texts = _COMPARE[self.op]
        if self.domain is None:
            of_texts = compare_texts(column, pa.scalar(str(self.value), column.type))
            return np.asarray(pc.fill_null(of_texts, False).to_numpy(zero_copy_only=False))
        constant: Any = self.value
        if self.domain is Domain.FLOAT:
            constant = encode(pa.array([self.value], pa.float64()), self.domain)[0]
        decided: npt.NDArray[np.bool_] = is_valid & compare_keys(encode(column, self.domain), constant)
        return decided


Clause = tuple[ColumnTest, ...]
"""Conditions of which at least one must be true."""


def decide_clause(clause: Clause, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return for each row of a batch whether one of the conditions is true."""
    decided: npt.NDArray[np.bool_] = np.logical_or.reduce(
        [test.decide(batch.column(test.column)) for test in clause]
    )
    return decided


def _check_place(place: int, n: int, *, may_be_time: bool = False) -> int:
    if not (0 <= place < n or (may_be_time and place == TIME)):
        raise ValueError(f"it names place {place} of {n}")
    return place


@dataclass(frozen=True)
class WrittenCheck:
    """A comparison of a left and a right block column, which units decide exactly. One of two is given."""

    name: str
    columns: tuple[str, str]
    band: ExactBand | None = None
    order: ExactOrder | None = None

    def read(self) -> PythonPredicate:
        """Return the predicate."""
        left, right = self.columns
        compare = self.band or self.order
        if compare is None or (self.order is not None and self.order.op not in (*_ORDERS, "<=>")):
            raise ValueError("a check must have a band, or an order of two values")
        columns = (((VALUE, left),), ((VALUE, right),))
        return PythonPredicate(self.name, compare, ("left", "right"), columns)


@dataclass(frozen=True)
class WrittenIndex:
    """An index of stored tuples, whose shape has a name of the registry."""

    shape: str
    equalities: tuple[int, ...] = ()
    dimensions: tuple[int, ...] = ()

    def read(self) -> IndexSpec:
        """Return the index."""
        if self.shape not in REGISTRY:
            raise ValueError(f"no index shape is named {self.shape!r}")
        return IndexSpec(REGISTRY[self.shape], self.equalities, self.dimensions)


@dataclass(frozen=True)
class WrittenJoin:
    """The join of a task that was added while the query runs."""

    on: str
    """The condition as the user wrote it."""
    sides: tuple[SideSpec, SideSpec]
    indexes: tuple[WrittenIndex, WrittenIndex]
    equalities: tuple[Equality, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    window: Dimension | None = None
    same: tuple[tuple[str, str], ...] = ()
    checks: tuple[WrittenCheck, ...] = ()
    archive_period_us: int | None = None
    tests: tuple[tuple[Clause, ...], tuple[Clause, ...]] = ((), ())
    """The filters of left and of right tuples, all of which must hold."""

    @property
    def condition(self) -> Condition:
        """The condition."""
        return Condition(
            self.sides,
            self.equalities,
            self.dimensions,
            self.window,
            tuple(check.read() for check in self.checks),
            self.same,
        )

    @property
    def index_specs(self) -> tuple[IndexSpec, IndexSpec]:
        """The indexes of stored left tuples and of stored right tuples."""
        left, right = (index.read() for index in self.indexes)
        return left, right

    @property
    def never_expires(self) -> tuple[bool, bool]:
        """For each stream, whether its stored tuples stay joinable for ever."""
        left, right = (compute_lifetime_us(self.window, side) is None for side in Side)
        return left, right

    def check(self) -> None:
        """Check that all parts of the join fit each other, so that a unit can run it.

        Raises
        ------
        ValueError
        """
        condition, has_window = self.condition, self.window is not None
        for clause in (*self.tests[0], *self.tests[1]):
            if not clause:
                raise ValueError("a filter has no condition")
            for test in clause:
                test.check()
        for side, spec in zip(Side, self.sides, strict=True):
            read = {key.column for key in spec.keys} | (
                {spec.time.column} if spec.time is not None else set()
            )
            read |= {pair[side] for pair in self.same} | {check.columns[side] for check in self.checks}
            unknown = read - {*spec.columns, *spec.computed}
            if unknown:
                raise ValueError(f"it compares {', '.join(sorted(unknown))}, and does not read it")
            for dimension in (*self.dimensions, *([self.window] if self.window is not None else ())):
                for key in dimension.list_keys(side):
                    spec.key(_check_place(key, len(spec.keys), may_be_time=True))
            for equality in self.equalities:
                _check_place((equality.left, equality.right)[side], len(spec.keys))
        for index in self.index_specs:
            for place in index.equalities:
                _check_place(place, len(condition.equalities))
            for place in index.dimensions:
                _check_place(place, len(condition.dimensions), may_be_time=has_window)


class RunningTask(NamedTuple):
    """A task of the control plan."""

    name: str
    since: int = 0
    """The version of the control plan that began the task. 0 means that it runs from the beginning."""
    join: WrittenJoin | None = None
    """The join of a task that was added; None for a task of the program."""

    @property
    def key(self) -> int | str:
        """What tells the state and the messages of the task from those of others, also of its own name.

        >>> RunningTask("near").key, RunningTask("near", 3).key
        ('near', 3)
        """
        return self.since or self.name
