"""A planned join is a flow: SQL texts and picklable values, which families build without Spark."""

import pickle
from dataclasses import replace

from thetastream.core.condition import Condition, SideSpec
from thetastream.core.how import HOWS
from thetastream.engine.answers.spec import DecidingSpec
from thetastream.engine.order import Order
from thetastream.engine.two_stream.moving import MovingSpec
from thetastream.families.engines import build_two_stream_join
from thetastream.families.pairs.flow import let_units_change
from thetastream.families.tasks import Task, TasksPlan, build_shared_tasks_join
from thetastream.index import IndexSpec, Scan
from thetastream.lowering.domains import write_literal
from thetastream.lowering.identity import Reading
from thetastream.lowering.physical import Carried, PhysicalPlan, SidePlan
from thetastream.models.matrix import Matrix
from thetastream.runtime.context import RunContext
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.flow import Flow

INDEX = IndexSpec(Scan())
TIME = Carried("x y", "c0", "bigint", "unix_micros(a.`x y`)", "timestamp_micros(`c0`)", "timestamp")
SIDES = (
    SidePlan(
        "a", (), (), (Carried("x y", "c0", "bigint", "a.`x y`", "timestamp_micros(`c0`)", "timestamp"),)
    ),
    SidePlan("b", (), (), (Carried("z", "c1", "int", "b.z", "`c1`", "int"),)),
)
PLAN = PhysicalPlan(
    SIDES,
    Condition((SideSpec("a", ("c0",), (), ()), SideSpec("b", ("c1",), (), ()))),
    (INDEX, INDEX),
    ("a.`x y` IS NULL OR b.z > 1",),
    None,
)
CHOSEN = Reading(chosen_for=4)


def choose(partitions: int) -> Matrix:
    return Matrix(partitions, 1)


def test_the_output_of_pairs_is_text() -> None:
    (stage,) = build_two_stream_join(PLAN, Matrix(2, 1), Reading()).stages
    assert stage.output.columns == ("c0 bigint", "c1 int")
    assert stage.output.restored == (
        "struct(timestamp_micros(`c0`) AS `x y`) AS `a`",
        "struct(`c1` AS `z`) AS `b`",
    )
    assert stage.output.residual == PLAN.residual


def test_an_order_belongs_to_the_stage_and_its_output_has_the_arrival() -> None:
    order = Order(10, is_punctuated=True)
    (stage,) = build_two_stream_join(PLAN, Matrix(1, 1), Reading(), order).stages
    assert stage.order == order
    assert stage.output.columns == ("c0 bigint", "arrival_left bigint", "c1 int", "arrival_right bigint")
    assert stage.output.restored[-1].endswith(" AS arrival")


def test_answers_behind_a_residual_have_two_stages() -> None:
    left = replace(PLAN, how=HOWS["left"])
    first, second = build_two_stream_join(left, Matrix(4, 1), CHOSEN, choose=choose).stages
    assert "`candidate row`" in first.output.restored[0]
    assert second.output.restored[1].startswith("CASE WHEN ")
    assert isinstance(second.spec, DecidingSpec)
    flow = let_units_change(Flow(SIDES, (), (first, second), {}), Rules(6))
    assert flow.rules == Rules(6)
    assert [stage.spec.n_units for stage in flow.stages] == [4, 6]
    # The change holds for every model that may be chosen.
    chosen = [stage.choice.fit(2).spec.n_units for stage in flow.stages if stage.choice is not None]
    assert chosen == [2, 6]


def test_moving_tuples_change_the_spec_of_the_first_stage() -> None:
    flow = build_two_stream_join(PLAN, Matrix(4, 1), CHOSEN, choose=choose)
    (stage,) = let_units_change(flow, Rules(6, moves_tuples=True)).stages
    assert stage.choice is not None
    assert isinstance(stage.spec, MovingSpec)
    assert isinstance(stage.choice.fit(2).spec, MovingSpec)
    (stage,) = let_units_change(flow, Rules(6)).stages
    assert not isinstance(stage.spec, MovingSpec)


def test_names_of_tasks_are_written_whatever_is_in_them() -> None:
    name = "it's \\ `one`"
    shared = TasksPlan(SIDES, (Task(name, PLAN, (None, None)),))
    (stage,) = build_shared_tasks_join(shared, Matrix(2, 1), Reading()).stages
    assert stage.output.columns[0] == "task int"
    assert stage.output.restored[0] == f"get(array({write_literal(name)}), task) AS task"
    (residual,) = stage.output.residual
    assert residual == f"CASE WHEN task = {write_literal(name)} THEN ({PLAN.residual[0]}\n) ELSE true END"


def test_flows_and_settings_are_picklable() -> None:
    flow = build_two_stream_join(PLAN, Matrix(4, 1), CHOSEN, choose=choose)
    moving = let_units_change(flow, Rules(6, moves_tuples=True))
    assert pickle.loads(pickle.dumps(moving)).stages[0].spec == moving.stages[0].spec
    run = RunContext(mailbox="box", late="late", max_units=6)
    assert pickle.loads(pickle.dumps(run)) == run
