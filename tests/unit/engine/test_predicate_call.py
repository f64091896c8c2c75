"""Python predicates receive plain or dictionary-encoded columns, and their errors name a row."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from thetastream.conditions import predicate
from thetastream.core.condition import Condition, PythonPredicate, SideSpec
from thetastream.core.errors import PredicateError, QueryError
from thetastream.core.sides import Side
from thetastream.engine.matching import Residual

LEFT = pa.RecordBatch.from_pydict({"x": [1, 2, 3]})
RIGHT = pa.RecordBatch.from_pydict({"y": [2, 3, 4, 5]})
FOUND, STORED = np.array([0, 0, 1, 2, 2]), np.array([0, 3, 0, 1, 2])


def residual(function, is_encoded: bool) -> Residual:
    asked = PythonPredicate("near", function, ("a", "b"), ((("x", "x"),), (("y", "y"),)), is_encoded)
    sides = SideSpec("a", ("x",)), SideSpec("b", ("y",))
    return Residual(Condition(sides, predicates=(asked,)))


def near(x, y):
    return np.abs(np.asarray(x) - np.asarray(y)) <= 1


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("is_encoded", [False, True])
def test_both_forms_see_the_same_candidates(side: Side, is_encoded: bool) -> None:
    def call(a: SimpleNamespace, b: SimpleNamespace):
        assert isinstance(a.x, pa.DictionaryArray) is is_encoded
        assert not is_encoded or a.x.dictionary.to_pylist() == [1, 2, 3]
        return near(a.x, b.y)

    probes, stored = ((LEFT, FOUND), (RIGHT, STORED))[:: 1 if side is Side.LEFT else -1]
    kept = residual(call, is_encoded).keep(side, *probes, *stored)
    left, right = kept[:: 1 if side is Side.LEFT else -1]
    assert list(zip(left, right, strict=True)) == [(0, 0), (1, 0), (2, 1), (2, 2)]


def test_an_error_names_the_first_row_that_raises() -> None:
    def call(a, b):
        if 3 in a.x.to_pylist():
            raise ValueError("three")
        return near(a.x, b.y)

    with pytest.raises(PredicateError, match=r"three \(on 5 candidates; the first is a.x = 3, b.y = 3\)"):
        residual(call, False).keep(Side.LEFT, LEFT, FOUND, RIGHT, STORED)


def test_an_error_of_many_candidates_only_names_none() -> None:
    def call(a, b):
        if len(a.x) > 2:
            raise MemoryError("too many")
        return near(a.x, b.y)

    with pytest.raises(PredicateError, match="on none of them alone"):
        residual(call, False).keep(Side.LEFT, LEFT, FOUND, RIGHT, STORED)


def test_form_is_checked() -> None:
    with pytest.raises(QueryError, match="PREDICATE_FORM"):
        predicate("lazy", a=["x"], b=["y"])


def test_a_mark_without_columns_says_how_to_name_them() -> None:
    with pytest.raises(QueryError, match=r'PREDICATE_COLUMNS.*write @th\.predicate\(a=\["x"\]'):

        @predicate
        def close(a, b):
            return a.x == b.y
