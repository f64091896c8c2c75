"""The payload of a planned join is exchanged, and everything that the condition reads is found again."""

from thetastream.core.condition import Condition, Domain, Key, PythonPredicate, SideSpec
from thetastream.index import IndexSpec, Scan
from thetastream.lowering.payload import exchange_payload
from thetastream.lowering.physical import Carried, PhysicalPlan, SidePlan


def carry(field: str, column: str) -> Carried:
    return Carried(field, column, "int", f"a.{field}", column)


def test_payload_columns_get_new_names_and_computed_columns_keep_theirs() -> None:
    left = SideSpec("a", ("c0", "c1"), ("k0",), (Key("k0", Domain.INT), Key("c1", Domain.INT)))
    right = SideSpec("b", ("c2",), ("k0",), (Key("k0", Domain.INT),))
    reads = ((("x", "k0"), ("y", "c1")), (("x", "k0"), ("y", "c2")))
    predicate = PythonPredicate("compare", print, ("a", "b"), reads)
    condition = Condition((left, right), predicates=(predicate,), same=(("k0", "c2"), ("c0", "k0")))
    sides = (
        SidePlan("a", (), (("k0", "a.x + 1"),), (carry("x", "c0"), carry("y", "c1"))),
        SidePlan("b", (), (("k0", "b.x + 1"),), (carry("y", "c2"),)),
    )
    index = IndexSpec(Scan())
    plan = PhysicalPlan(sides, condition, (index, index), (), None)

    now = (carry("y", "c0"), carry("x", "c1")), (carry("x", "c2"), carry("y", "c3"))
    found = exchange_payload(plan, now).condition

    assert [side.columns for side in found.sides] == [("c0", "c1"), ("c2", "c3")]
    assert [[key.column for key in side.keys] for side in found.sides] == [["k0", "c0"], ["k0"]]
    assert found.predicates[0].columns == ((("x", "k0"), ("y", "c0")), (("x", "k0"), ("y", "c3")))
    assert found.same == (("k0", "c3"), ("c1", "k0"))
