"""Tasks that are added to and removed from a running query: the plan, and random schedules against the nested
loop."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.changing_tasks import TASK_RULES, run_changing_tasks
from tests.support.control_runs import TasksRun
from tests.support.controlled import CONDITION, RULES, SIDES, TASKS, TASKS_ON_A_CHAIN
from thetastream.core.errors import QueryError, StateError
from thetastream.engine.running_tasks import ColumnTest, RunningTask, WrittenIndex, WrittenJoin
from thetastream.models import Biclique, Chain
from thetastream.runtime.control.change import change_plan
from thetastream.runtime.control.plan import ControlPlan, decode_plan, encode_plan
from thetastream.runtime.control.request import Request

OPEN_RULES = replace(RULES, routings=(), tasks=TASK_RULES)


@pytest.mark.parametrize("kind", [TASKS, TASKS_ON_A_CHAIN])
@pytest.mark.parametrize("seed", range(12))
def test_each_task_finds_the_pairs_of_its_life(kind: str, seed: int) -> None:
    """Both tuples of a pair arrive while the task runs, whatever units change and whatever crashes."""
    ran = run_changing_tasks(seed, kind)
    assert ran.n_changes
    for life in ran.lives:
        expected = ran.find_expected(life)
        if kind == TASKS_ON_A_CHAIN and life.ended is not None:
            # A chain finds some pairs later than their tuples arrive. A task that has ended finds nothing.
            assert life.found <= expected
        else:
            assert life.found == expected


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 30), marks=pytest.mark.slow)], ids=str)
def test_nothing_is_left_of_tasks_that_have_ended(seeds: range) -> None:
    found = set()
    for seed in seeds:
        run = run_changing_tasks(seed).run
        for slot, state in enumerate(run.states):
            tasks = [*state.tasks.values(), *state.added.values()]
            named = {meta["id"] for task in tasks for meta in task["segments"]}
            assert set(run._stores[slot]._runs) == named
            found |= named
    assert found


@pytest.mark.parametrize("crash", [None, 0, 1, 3])
@pytest.mark.parametrize("model", [Biclique((2, 1)), Chain(2, block=3)], ids=repr)
def test_tasks_change_as_spark_runs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Any, crash: int | None
) -> None:
    """A task begins and ends, units change meanwhile, epochs crash, and the query starts again."""
    run = TasksRun(tmp_path, monkeypatch, model)
    crashes = () if crash is None else (crash,)
    join = run.write_task(6)
    run.run()
    run.spark.control.put_request(Request(add=RunningTask("near", join=join)).write())
    run.run(crashes=crashes)  # This epoch publishes the plan, so the task runs from epoch 2 on.
    sizes = {"workers": 3} if isinstance(model, Chain) else {"units": (1, 2)}
    run.spark.control.put_request(Request(sizes=sizes).write())
    run.run(crashes=crashes)
    run.run()
    run.spark.control.put_request(Request(remove="both").write())
    run.run(crashes=crashes)  # The last epoch of the task of the program is epoch 4.
    run.spark.start()
    for _ in range(3):
        run.run()
    run.spark.control.put_request(Request(add=RunningTask("both")).write())
    run.run()  # It begins again in epoch 9.
    for _ in range(14):
        run.run(n=4 if run.epoch < 13 else 0)
    assert [task.name for task in run.spark.plan.tasks or ()] == ["near", "both"]
    found = {
        name: Counter({(left, right): n for (task, left, right), n in run.found.items() if task == name})
        for name in ("near", "both")
    }
    assert found["near"] == run.find_pairs(join, 2, None)
    before, after = run.find_pairs(None, 0, 5), run.find_pairs(None, 9, None)
    assert len(found["near"]) > 20
    assert len(after) > 10
    if isinstance(model, Chain):
        assert after <= found["both"] <= before + after
    else:
        assert found["both"] == before + after


def test_a_checkpoint_with_other_tasks_needs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program must go on with max_tasks, its own tasks, and the columns that an added task reads."""
    run = TasksRun(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    run.spark.control.put_request(Request(add=RunningTask("near", join=run.write_task(6))).write())
    run.run()
    run.spark.control.put_request(Request(remove="both").write())
    run.run()
    run.spark.control.put_request(Request(add=RunningTask("both")).write())
    run.run()
    tasks = run.rules.tasks
    assert tasks is not None
    for rules, lacking in (
        (None, "max_tasks"),
        (replace(tasks, names=("other",)), "the task of this name"),
        (replace(tasks, columns=(("id", "t", "k"), tasks.columns[1])), "v"),
    ):
        run.spark.rules = replace(run.rules, tasks=rules)
        run.spark.start()
        with pytest.raises(StateError, match=rf"STATE_OF_ANOTHER_QUERY.* needs {lacking}; give max_tasks"):
            run.spark.log_offset()


NEAR = WrittenJoin("near", CONDITION.sides, (WrittenIndex("scan"),) * 2, window=CONDITION.window)


def change(plan: ControlPlan, **changes: Any) -> ControlPlan:
    return change_plan(plan, Request(**changes), OPEN_RULES)


def test_the_plan_lists_the_tasks_that_run() -> None:
    plan = ControlPlan.begin(Biclique((1, 1)))
    added = change(plan, add=RunningTask("near", join=NEAR))
    assert added.tasks == (RunningTask("wide"), RunningTask("narrow"), RunningTask("near", 1, NEAR))
    # The same request again changes nothing.
    assert change(added, add=RunningTask("near", join=NEAR)) is added
    assert change(plan, add=RunningTask("wide")) is plan
    again = change(change(added, remove="wide"), add=RunningTask("wide"))
    assert again.tasks == (RunningTask("narrow"), RunningTask("near", 1, NEAR), RunningTask("wide", 3))
    assert decode_plan(json.loads(json.dumps(encode_plan(again)))) == again


@pytest.mark.parametrize(
    ("changes", "condition", "words"),
    [
        ({"remove": "near"}, "TASKS", "no task 'near' runs, only 'wide', 'narrow'"),
        ({"add": RunningTask("near")}, "TASKS", "the program has no task 'near'"),
        ({"add": RunningTask("wide", join=NEAR)}, "TASKS", "another condition runs already"),
        (
            {"add": RunningTask("near", join=replace(NEAR, tests=(((ColumnTest("z"),),), ())))},
            "BAD_REQUEST",
            "reads z, which no block",
        ),
        (
            {
                "add": RunningTask(
                    "near", join=replace(NEAR, sides=(replace(SIDES[0], columns=("id",)), SIDES[1]))
                )
            },
            "BAD_REQUEST",
            "have other columns",
        ),
    ],
)
def test_a_request_that_does_not_fit_is_refused(changes: Any, condition: str, words: str) -> None:
    with pytest.raises(QueryError, match=rf"{condition}.*{words}"):
        change(ControlPlan.begin(Biclique((1, 1))), **changes)


def test_a_query_keeps_a_task_and_has_no_more_than_the_most() -> None:
    plan = ControlPlan.begin(Biclique((1, 1)))
    one = change(plan, remove="wide")
    with pytest.raises(QueryError, match=r"TASKS.*at least one task"):
        change(one, remove="narrow")
    with pytest.raises(QueryError, match=r"TASKS.*name 'wide' is that of a task of the program"):
        change(one, add=RunningTask("wide", join=NEAR))
    for name in "ab":
        plan = change(plan, add=RunningTask(name, join=NEAR))
    with pytest.raises(QueryError, match=r"MAX_TASKS.*4 tasks run"):
        change(plan, add=RunningTask("c", join=NEAR))
    with pytest.raises(QueryError, match=r"TASKS.*started with max_tasks"):
        change_plan(plan, Request(remove="a"), RULES)


def test_units_stay_while_a_task_stores_tuples_for_ever() -> None:
    plan = ControlPlan.begin(Biclique((2, 1)))
    endless = change(plan, add=RunningTask("near", join=replace(NEAR, window=None)))
    with pytest.raises(QueryError, match=r"CANNOT_SCALE.*unit 1 cannot leave"):
        change(endless, sizes={"units": (1, 1)})
    assert change(change(endless, remove="near"), sizes={"units": (1, 1)}).leaving == {1: 3}


@pytest.mark.parametrize(
    "damage",
    [
        {"indexes": [{"shape": "no shape"}] * 2},
        {"indexes": [{"shape": "hash", "equalities": [3]}] * 2},
        {"equalities": [{"left": 7, "right": 0}]},
        {"checks": [{"name": "x", "columns": ["k", "k"]}]},
        {"checks": [{"name": "x", "columns": ["z", "k"], "order": {"op": "<"}}]},
        {"tests": [[{"column": 3}], []]},
        {"same": [["z", "k"]]},
        {"checks": [{"name": "x", "columns": ["k", "k"], "order": {"op": "~"}}]},
        {"tests": [[{"column": "k", "op": "~", "domain": "int", "value": 1}], []]},
        {"tests": [[{"column": "k", "op": "=", "domain": "int", "value": "1"}], []]},
        {"tests": [[{"column": "k", "op": "<", "value": "1"}], []]},
        {"sides": []},
    ],
    ids=str,
)
def test_a_request_whose_task_no_unit_could_run_is_refused(damage: dict[str, Any]) -> None:
    values = json.loads(Request(add=RunningTask("near", join=NEAR)).write())
    values["add"][2] |= damage
    with pytest.raises(QueryError, match="BAD_REQUEST"):
        Request.read(json.dumps(values))
