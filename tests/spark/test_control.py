"""Joins whose units change while they run: requests, restarts in the middle of a change, refusals."""

import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import thetastream as th
from tests.support.controlled_query import WITHIN_S, Controlled
from thetastream.core.errors import QueryError
from thetastream.engine.multiway.spec import MultiwaySpec
from thetastream.engine.two_stream.moving import MovingSpec
from thetastream.families.hops import graph
from thetastream.families.pairs import flow


@pytest.mark.usefixtures("only_epochs_with_rows")
def test_units_change_and_a_restart_in_the_middle_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Controlled(spark, tmp_path)
    run.start(th.Biclique((1, 1)), max_units=6)
    run.add()
    handle = th.control(run.query)
    assert handle.status()["generations"][0]["held"] > 0
    # 1. Grow, and become another model, in one epoch or in two.
    handle.scale(units=(2, 1))
    handle.scale(model=th.Split(2))
    status = run.run_until(lambda status: status["version"] == 2)
    assert len(status["generations"]) == 2
    assert set(status["generations"][0]["leaving"]) >= {0, 1}
    # 2. Restart in the middle, from another process as it were: the checkpoint tells where the folder is.
    run.query.stop()
    request = th.control(tmp_path / "checkpoint").scale(cores=1)
    assert th.control(str(tmp_path / "checkpoint")).status()["requests"][request] == "waiting"
    run.start(th.Biclique((1, 1)), max_units=6)
    status = run.run_until(lambda status: len(status["generations"]) == 1, 200)
    assert status["requests"][request] == "accepted"
    assert status["generations"][0]["model"] == "Split(cores=1)"
    assert status["version"] >= 4
    run.add()
    # 3. Only the units of the last generation are called, and the query is idle without input.
    units = th.metrics(run.query)[-1]["units"]
    assert [unit["unit"] for unit in units] == status["generations"][0]["units"]
    epoch = run.query.lastProgress["batchId"]
    time.sleep(1)
    assert run.query.lastProgress["batchId"] == epoch
    run.query.stop()
    assert run.found == run.expect()
    # 4. The scaled join does not continue without control.
    with pytest.raises(StreamingQueryException, match=r"\[CONTROL_NEEDED\]"):
        run.start(th.Biclique((1, 1))).processAllAvailable()


@pytest.mark.slow
def test_a_cheaper_model_is_chosen_by_the_statistics_of_the_running_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Controlled(spark, tmp_path, on="a.x = b.x AND a.id <> b.id")
    run.start(th.Split(8), max_units=24)
    marked = {name: frame.withWatermark("ts", "5 seconds") for name, frame in run.streams.items()}
    plan = th.plan(marked, run.on, f"{WITHIN_S} seconds", th.Split(8), max_units=24)
    with pytest.raises(QueryError, match="NOTHING_MEASURED"):
        plan.rechoose(run.query)
    run.add()
    assert plan.rechoose(run.query, factor=1000) is None
    model = plan.rechoose(run.query, factor=1.2)
    assert isinstance(model, th.Matrix | th.Biclique)
    status = run.run_until(lambda status: status["version"] >= 1 and len(status["generations"]) == 1)
    assert status["generations"][0]["model"] == repr(model)
    run.add()
    # The cheapest model stays.
    assert plan.rechoose(run.query, factor=1) is None
    run.query.stop()
    pairs = [(a, b) for a in range(run.n) for b in range(a % 11, run.n, 11) if 0 < abs(a - b) <= WITHIN_S]
    assert run.found == Counter(pairs)
    for wrong, condition in ((0.5, "BAD_REQUEST"), (True, "BAD_REQUEST")):
        with pytest.raises(QueryError, match=condition):
            plan.rechoose(run.query, wrong)
    three = th.plan({**marked, "c": marked["a"]}, "a.x = b.x AND b.x = c.x", "1 minute", th.Ring(2))
    with pytest.raises(QueryError, match=r"CANNOT_SCALE.*two streams"):
        three.rechoose(run.query)


@pytest.mark.slow
def test_units_of_different_strength_store_shares_in_proportion(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first left unit seems to be three times as strong as the second one."""
    run = Controlled(spark, tmp_path)
    run.start(th.Biclique((2, 1)), max_units=3)
    run.add()
    handle = th.control(run.query)
    with pytest.raises(QueryError, match="BAD_REQUEST"):
        handle.balance(0.5)
    with pytest.raises(QueryError, match=r"BAD_REQUEST.*needs the running query"):
        th.control(tmp_path / "checkpoint").balance()
    units = [{"unit": unit, "held": 90, "busy_ms": ms} for unit, ms in enumerate((10, 30, 20))]
    epochs = [{"join": handle.name, "left": 1, "right": 0, "units": units}]
    monkeypatch.setattr("thetastream.joins.handle.metrics", lambda _: epochs)
    assert handle.balance(1.6) is None
    assert handle.balance() == (1.5, 0.5, 1.0)
    monkeypatch.undo()
    (generation,) = run.run_until(lambda status: status["version"] == 1)["generations"]
    assert generation["model"] == "Biclique(units=(2, 1), capacities=(1.5, 0.5, 1.0))"
    assert generation["units"] == [0, 1, 2]
    began = th.metrics(run.query)[-1]["epoch"]
    run.add(200)
    stored = [
        sum(one["units"][unit]["stored"] for one in th.metrics(run.query) if one["epoch"] > began)
        for unit in range(3)
    ]
    assert stored[0] + stored[1] == stored[2]
    assert stored[0] > 1.8 * stored[1] > 0
    run.query.stop()
    assert run.found == run.expect()


@pytest.mark.slow
def test_tuples_of_the_full_history_move(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units leave with their tuples, a few in each epoch, and each new tuple finds all older ones."""
    monkeypatch.setattr(flow, "MovingSpec", partial(MovingSpec, most_tuples=50))
    run = Controlled(spark, tmp_path)
    run.start(th.Matrix(1, 2), None, max_units=4)
    run.add(120)
    th.control(run.query).scale(model=th.Biclique((1, 1)))
    status = run.run_until(lambda status: status["version"] == 2, 5)
    (generation,) = status["generations"]
    assert (generation["model"], generation["units"]) == ("Biclique(units=(1, 1))", [2, 3])
    assert generation["held"] >= 2 * run.n - 10
    moved = [sum(unit["forwarded"] for unit in entry["units"]) for entry in th.metrics(run.query)]
    assert sum(moved) >= 2 * 120
    assert max(moved) <= 2 * 2 * 50
    run.add(5)
    run.query.stop()
    assert run.found == run.expect(within_s=run.n)


@pytest.mark.slow
@pytest.mark.parametrize("hops", ["mailbox", "epoch"])
def test_nodes_of_a_ring_of_three_streams_change(spark: SparkSession, tmp_path: Path, hops: str) -> None:
    """The query starts without control and continues with it. With a mailbox, partial results are in flight
    at the change."""
    run = Controlled(spark, tmp_path, "abc")
    run.start(th.Ring(1, hops=hops))
    run.add()
    run.query.stop()
    run.start(th.Ring(1, hops="auto" if hops == "mailbox" else hops), max_units=3)
    run.add()
    handle = th.control(run.query)
    handle.scale(nodes=2)
    with pytest.raises(th.QueryError, match=r"\[CANNOT_SCALE\].*only nodes may change"):
        handle.scale(model=th.Split(2))
    status = run.run_until(lambda status: status["version"] == 2, 100)
    assert [one["units"] for one in status["generations"]] == [[1, 2]]
    run.add()
    run.query.stop()
    assert run.found == run.expect()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("aliases", "within"), [("ab", "60 seconds"), ("abc", "60 seconds"), ("abc", None)], ids=repr
)
def test_tuples_of_a_ring_move_to_its_new_nodes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aliases: str, within: str | None
) -> None:
    """A few tuples move in each epoch, and the query stops and starts again while they do."""
    monkeypatch.setattr(flow, "MovingSpec", partial(MovingSpec, most_tuples=4))
    monkeypatch.setattr(graph, "MultiwaySpec", partial(MultiwaySpec, most_moved=4))
    run = Controlled(spark, tmp_path, aliases)
    model = th.Ring(1, moves_tuples=within is not None)
    run.start(model, within, max_units=3)
    run.add()
    handle = th.control(run.query)
    handle.scale(nodes=2)
    run.write(1)
    while handle.status()["version"] == 0:
        assert run.query.isActive
        time.sleep(0.2)
    run.query.stop()
    assert handle.status()["version"] == 1
    run.start(model, within, max_units=3)
    status = run.run_until(lambda status: status["version"] == 2, 1)
    assert [one["units"] for one in status["generations"]] == [[1, 2]]
    assert status["generations"][0]["held"] >= 40 * len(aliases)
    run.add()
    run.query.stop()
    assert run.found == run.expect(WITHIN_S if within else run.n)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "aliases", "sizes"),
    [
        (th.Chain(1), "ab", {"workers": 2}),
        (th.ATR(1, "20 seconds"), "abc", {"nodes": 2}),
        (th.CTR(2, 2, "20 seconds"), "abc", {"nodes": 3}),
    ],
    ids=repr,
)
def test_units_of_other_models_change(
    spark: SparkSession, tmp_path: Path, model: Any, aliases: str, sizes: dict[str, int]
) -> None:
    run = Controlled(spark, tmp_path, aliases)
    run.start(model, max_units=5)
    run.add()
    th.control(run.query).scale(**sizes)
    status = run.run_until(lambda status: status["version"] == 2, 100)
    assert [len(one["units"]) for one in status["generations"]] == [*sizes.values()]
    run.query.stop()
    assert run.found == run.expect()


@pytest.mark.slow
def test_units_of_a_count_window_change(spark: SparkSession, tmp_path: Path) -> None:
    run = Controlled(spark, tmp_path)
    run.start(th.Split(1), th.Rows(50), max_units=4)
    run.add()
    handle = th.control(run.query)
    with pytest.raises(th.QueryError, match=r"\[CANNOT_SCALE\]"):
        handle.scale(model=th.Matrix(2, 1))
    handle.scale(cores=2)
    run.run_until(lambda status: status["version"] == 1)
    status = run.run_until(lambda status: len(status["generations"]) == 1)
    assert status["generations"][0]["model"] == "Split(cores=2)"
    run.add()
    run.query.stop()
    assert run.found == run.replay_counted(50)


@pytest.mark.slow
def test_units_of_an_ordered_join_go_on_counting(spark: SparkSession, tmp_path: Path) -> None:
    """Each arrival number belongs to one tuple, whatever the units that have found its results."""
    run = Controlled(spark, tmp_path)
    arrival = [f"arrival.{name}" for name in ("number", "alias", "stored")]
    run.start(th.Split(1), order="outer", max_units=3, more=arrival)
    run.add()
    th.control(run.query).scale(cores=2)
    status = run.run_until(lambda status: len(status["generations"]) == 2)
    assert status["coming"] is None
    run.run_until(lambda status: [one["units"] for one in status["generations"]] == [[1, 2]])
    run.query.stop()
    assert Counter((a, b) for a, b, *_ in run.found.elements()) == run.expect()
    tuples: dict[int, tuple[str, int]] = {}
    for a, b, number, alias, stored in run.found:
        ids = {"a": a, "b": b}
        other = "b" if alias == "a" else "a"
        assert tuples.setdefault(number, (alias, ids[alias])) == (alias, ids[alias])
        assert tuples.setdefault(stored, (other, ids[other])) == (other, ids[other])
    assert len(tuples) > run.n


@pytest.mark.slow
def test_a_run_of_one_epoch_reads_requests(spark: SparkSession, tmp_path: Path) -> None:
    """Its source process is new and loads what folds requests, so it must wait for that."""
    joined = Controlled(spark, tmp_path)

    def run() -> None:
        joined.start(th.Biclique((1, 1)), max_units=6, is_once=True).awaitTermination()

    joined.write(40)
    run()
    name = th.control(joined.checkpoint).scale(units=(2, 1))
    for _ in range(3):
        joined.write(40)
        run()
    status = th.control(joined.checkpoint).status()
    assert status["requests"][name] == "accepted"
    assert status["generations"][-1]["model"].startswith("Biclique(units=(2, 1)")
    assert joined.found == joined.expect()


@pytest.mark.slow
def test_refusals(spark: SparkSession, tmp_path: Path) -> None:
    run = Controlled(spark, tmp_path)
    run.start(th.Biclique((1, 1)))
    run.add()
    with pytest.raises(th.QueryError, match=r"\[NOT_CONTROLLED\]"):
        th.control(run.query)
    run.query.stop()
    # The same checkpoint continues with control.
    run.start(th.Biclique((1, 1)), max_units=3)
    run.add()
    handle = th.control(run.query)
    for sizes, condition in (({"units": (9, 9)}, "MAX_UNITS"), ({"cores": 2}, "CANNOT_SCALE")):
        with pytest.raises(th.QueryError, match=rf"\[{condition}\]"):
            handle.scale(**sizes)
    run.query.stop()
    assert run.found == run.expect()
    with pytest.raises(th.ThetastreamError, match=r"\[NO_CHECKPOINT\]"):
        th.control(tmp_path)
    with pytest.raises(th.QueryError, match=r"\[CANNOT_SCALE\].*'a' never expire"):
        run.start(th.Matrix(1, 1), None, how="semi", max_units=4)
    with pytest.raises(th.QueryError, match=r"\[MAX_UNITS\]"):
        run.start(th.Split(9), max_units=4)


@pytest.mark.slow
def test_a_policy_scales_a_running_query(spark: SparkSession, tmp_path: Path) -> None:
    run = Controlled(spark, tmp_path)
    run.start(th.Biclique((1, 1)), max_units=16)
    run.add()
    # A window of 60 tuples of each stream has more than 2 kB.
    handle = th.control(run.checkpoint)
    handle.follow(th.TwoPhaseScaling(capacity="2 kB", every="100 milliseconds", agree=2))
    status = run.run_until(lambda status: status["version"] >= 2)
    assert any(name.startswith("policy-") for name in status["requests"])
    assert len(status["generations"][-1]["units"]) > 2
    # A query that starts again remembers the policy.
    run.query.stop()
    run.start(th.Biclique((1, 1)), max_units=16)
    for _ in range(3):
        run.add()
    assert handle.status()["policy"] == status["policy"]
    assert len(th.metrics(run.query)[-1]["units"]) > 2
    handle.follow(None)
    run.run_until(lambda status: status["policy"] is None)
    assert sum(epoch["busy_ms"] for epoch in th.metrics(run.query)) > 0
    run.query.stop()
    assert run.found == run.expect()


@pytest.mark.slow
def test_each_join_of_a_pipeline_changes_its_units(spark: SparkSession, tmp_path: Path) -> None:
    """The joins have names of their own, and a restart comes between their changes."""
    run = Controlled(spark, tmp_path, "abc")
    run.start(th.Biclique((1, 1)), max_units=6)
    run.add()
    with pytest.raises(th.QueryError, match=r"\[SEVERAL_JOINS\].*b.x = c.x.*give join="):
        th.control(run.query)
    names = {epoch["join"] for epoch in th.metrics(run.query)}
    assert len(names) == 2
    for number, (name, units) in enumerate(zip(sorted(names), ((2, 1), (2, 2)), strict=True)):
        handle = th.control(run.query if number else run.checkpoint, name)
        handle.scale(units=units)
        for _ in range(4):
            run.add()
        (generation,) = handle.status()["generations"]
        assert generation["model"] == repr(th.Biclique(units))
        if not number:
            run.query.stop()
            run.start(th.Biclique((1, 1)), max_units=6)
    run.query.stop()
    assert run.found == run.expect()
