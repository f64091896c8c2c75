"""Python predicates receive plain or dictionary-encoded columns, and their errors name a row."""

import pickle
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from thetastream.conditions import predicate, stable
from thetastream.core.condition import Condition, MeasuredPair, PythonPredicate, SideSpec
from thetastream.core.errors import PredicateError, QueryError
from thetastream.core.measure import MeasureLimit
from thetastream.core.sides import Side
from thetastream.engine.matching import Residual
from thetastream.engine.store.probing import Candidates
from thetastream.index.measures import REGISTRY

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
    kept = residual(call, is_encoded).keep(side, probes[0], Candidates(probes[1], *stored, 0))
    left, right = kept[:: 1 if side is Side.LEFT else -1]
    assert list(zip(left, right, strict=True)) == [(0, 0), (1, 0), (2, 1), (2, 2)]


def test_an_error_names_the_first_row_that_raises() -> None:
    def call(a, b):
        if 3 in a.x.to_pylist():
            raise ValueError("three")
        return near(a.x, b.y)

    with pytest.raises(PredicateError, match=r"three \(on 5 candidates; the first is a.x = 3, b.y = 3\)"):
        residual(call, False).keep(Side.LEFT, LEFT, Candidates(FOUND, RIGHT, STORED, 0))


def test_an_error_of_many_candidates_only_names_none() -> None:
    def call(a, b):
        if len(a.x) > 2:
            raise MemoryError("too many")
        return near(a.x, b.y)

    with pytest.raises(PredicateError, match="on none of them alone"):
        residual(call, False).keep(Side.LEFT, LEFT, Candidates(FOUND, RIGHT, STORED, 0))


def test_the_first_measure_is_not_computed_for_proved_pairs() -> None:
    limits = [MeasureLimit(REGISTRY["bit_count"], "<=", most) for most in (0.0, 1.0)]
    measured = tuple(MeasuredPair(("x", "y"), limit) for limit in limits)
    sides = SideSpec("a", ("x",)), SideSpec("b", ("y",))
    condition = Condition(sides, predicates=tuple(one.check for one in measured), measured=measured)
    left, right = (pa.RecordBatch.from_pydict({name: [1, 2, 3]}) for name in "xy")
    rows = np.arange(3), np.array([0, 2, 0])  # 0, 1 and 1 bits differ
    for is_proved, kept in ((False, [0]), (True, [0, 1, 2])):
        candidates = Candidates(rows[0], right, rows[1], 0, is_proved)
        assert Residual(condition).keep(Side.LEFT, left, candidates)[0].tolist() == kept


def test_form_is_checked() -> None:
    with pytest.raises(QueryError, match="PREDICATE_FORM"):
        predicate("lazy", a=["x"], b=["y"])


def test_a_mark_without_columns_says_how_to_name_them() -> None:
    with pytest.raises(QueryError, match=r'PREDICATE_COLUMNS.*write @th\.predicate\(a=\["x"\]'):

        @predicate
        def close(a, b):
            return a.x == b.y


def test_a_stable_predicate_is_pickled_with_its_version() -> None:
    @predicate(a=["x"], b=["y"])
    def near(a, b):
        return a.x == b.y

    copy = pickle.loads(cloudpickle.dumps(stable(near, version="1")))
    assert (copy.name, copy.is_stable, copy.version) == (near.name, True, "1")
    assert copy(SimpleNamespace(x=1), SimpleNamespace(y=1))
