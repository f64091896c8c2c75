"""Tasks that are added to and removed from a running query: the plan, and random schedules against the nested
loop."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.changing_tasks import run_changing_tasks
from tests.support.control_runs import TasksRun
from tests.support.controlled import TASKS, TASKS_ON_A_CHAIN
from thetastream.core.errors import StateError
from thetastream.engine.running_tasks import RunningTask
from thetastream.models import Biclique, Chain
from thetastream.runtime.control.request import Request


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


def test_nothing_is_left_of_tasks_that_have_ended() -> None:
    found = set()
    for seed in range(30):
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
