"""Running queries in the service: their last epochs, their state, and what has changed."""

import json
import os
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.encoders import jsonable_encoder

from tests.support.metric_entries import make_entry
from tests.support.service import run_service
from thetastream.models import Biclique, Matrix, Split
from thetastream.runtime.control.change import change_plan
from thetastream.runtime.control.plan import ControlPlan, Rules, encode_plan
from thetastream.runtime.control.request import Request
from thetastream.runtime.observe.epoch_lines import MetricLines
from thetastream.service import running
from thetastream.service.running import MetricsFile, describe_query, find_changes

ENDED = {"ended": "2026-01-05T09:31:00+00:00"}


def read_states(file: MetricsFile) -> dict[str, str]:
    return {name: state for name, (state, _) in file.read().items()}


def read_epochs(file: MetricsFile, query: str = "q") -> list[int]:
    _, lines = file.read()[query]
    return [entry["epoch"] for entry in lines.joins["ab12"]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_a_query_runs_has_ended_or_is_lost(path: Path) -> None:
    writer, reader = MetricLines(path), MetricsFile(path)
    writer.write("q", make_entry(3))
    writer.write("other", make_entry(1))
    assert read_states(reader) == {"q": "running", "other": "running"}
    writer.write("q", ENDED)
    assert read_states(reader) == {"q": "ended", "other": "running"}
    writer.write("q", {**ENDED, "error": "StateError: [X] damaged"})
    assert read_states(reader) == {"q": "failed", "other": "running"}
    writer.write("q", ENDED)
    writer.close()
    assert read_states(reader) == {"q": "ended", "other": "lost"}
    again = MetricLines(path)
    again.write("q", make_entry(4))
    assert read_states(reader)["q"] == "running"
    again.close()


def test_restarts_are_counted_by_the_runs_of_the_lines(path: Path) -> None:
    writer, reader = MetricLines(path), MetricsFile(path)
    times = [f"2026-01-05T09:3{minute}:00.000Z" for minute in range(6)]
    # An earlier version wrote no runs. Both joins of a run report each epoch.
    writer.write("q", make_entry(1, run=None, began=times[0]))
    for epoch, run in ((2, "x"), (2, "y"), (3, "y"), (4, "z")):
        for join in ("ab12", "cd34"):
            writer.write("q", make_entry(epoch, run=run, join=join, began=times[epoch]))
    writer.write("q", ENDED)
    writer.close()
    _, lines = reader.read()["q"]
    query = describe_query("q", "ended", lines, 10)
    assert (query.restarts, query.since) == (2, times[4])


def test_a_program_on_another_machine_is_not_lost(path: Path) -> None:
    path.write_text(json.dumps({"query": "q", "host": "elsewhere", **make_entry(3)}) + "\n")
    assert read_states(MetricsFile(path)) == {"q": "running"}


def test_only_whole_lines_are_read(path: Path) -> None:
    line = json.dumps({"query": "q", **make_entry(3)}) + "\n"
    path.write_text(line + line.replace('"epoch": 3', '"epoch": 4')[:30])
    reader = MetricsFile(path)
    assert read_epochs(reader) == [3]
    with path.open("a") as file:
        file.write(line.replace('"epoch": 3', '"epoch": 4')[30:] + '{"query": 1}\nno JSON\n')
    assert read_epochs(reader) == [3, 4]


def damage_line(line: str, chance: random.Random) -> str:
    """Change a value of a line of metrics, or a character of it."""
    if chance.random() < 0.3:
        at = chance.randrange(len(line))
        return line[:at] + chance.choice('0-9"[]{}xN,') + line[at + 1 :]
    entry = json.loads(line)
    place, name = entry, ""
    while not name or (isinstance(place[name], dict) and place[name] and chance.random() < 0.6):
        place = place[name] if name else place
        name = chance.choice([*place])
    if chance.random() < 0.2:
        del place[name]
    else:
        place[name] = chance.choice(
            [None, -1, 0, 1e308, float("nan"), "x", [], {}, [[]], [{}], {"x": 1}, 10**400]
        )
    return json.dumps(entry)


@pytest.mark.filterwarnings("error")
def test_damaged_lines_hide_no_other_query(path: Path) -> None:
    """One such line made the service answer with an error, for all queries."""
    plan = {**encode_plan(ControlPlan.begin(Split(2))), "outcomes": {}}
    entries = [make_entry(epoch, plan=None, control=plan) for epoch in range(2)]
    lines = [json.dumps({"query": "damaged", "host": "h", **entry}) for entry in entries]
    fine = json.dumps({"query": "fine", "host": "h", **make_entry(1)})
    chance = random.Random(7)
    for _ in range(400):
        damaged = damage_line(lines[1], chance)
        path.write_text("\n".join([lines[0], damaged, fine, ""]), errors="replace")
        found = [describe_query(name, *known, 9) for name, known in MetricsFile(path).read().items()]
        assert "fine" in [one.name for one in found], damaged
        for one in found:
            text = json.dumps(jsonable_encoder(one), allow_nan=False)
            assert len(text) < 20_000


def test_an_epoch_that_is_reported_again_counts_once(path: Path) -> None:
    writer = MetricLines(path)
    for epoch in (3, 4, 5, 4):
        writer.write("q", make_entry(epoch))
    writer.close()
    assert read_epochs(MetricsFile(path)) == [3, 4]


def test_later_lines_do_not_change_what_was_read(path: Path) -> None:
    writer, reader = MetricLines(path), MetricsFile(path)
    writer.write("q", make_entry(3))
    _, lines = reader.read()["q"]
    writer.write("q", make_entry(4))
    writer.close()
    assert read_epochs(reader) == [3, 4]
    assert [entry["epoch"] for entry in lines.joins["ab12"]] == [3]


def test_a_file_that_was_moved_away_is_followed(path: Path) -> None:
    writer, reader = MetricLines(path), MetricsFile(path)
    writer.write("q", make_entry(3))
    assert read_epochs(reader) == [3]
    os.rename(path, path.with_suffix(".old"))
    writer.write("q", make_entry(4))
    assert read_epochs(reader) == [3, 4]
    assert read_states(reader) == {"q": "running"}
    writer.close()


def test_a_long_file_is_read_from_its_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = MetricLines(path)
    for epoch in range(50):
        writer.write("q", make_entry(epoch))
    writer.close()
    monkeypatch.setattr(running, "LARGEST_READ", path.stat().st_size // 10)
    found = read_epochs(MetricsFile(path))
    assert found == list(range(found[0], 50))
    assert 2 <= len(found) <= 5


def test_totals_count_every_epoch_once(path: Path) -> None:
    """They were sums of the epochs that are shown, so they stood still while a query ran."""
    writer, reader = MetricLines(path), MetricsFile(path)

    def read() -> running.RunningJoin:
        (join,) = describe_query("q", *reader.read()["q"], n_epochs=2).joins
        return join

    for epoch in range(running.KEPT_EPOCHS + 10):
        writer.write("q", make_entry(epoch))
    n = running.KEPT_EPOCHS + 10
    # The program was stopped while the last epoch ran, and the next run repeats it with another result.
    writer.write("q", make_entry(n - 1, matched=9))
    join = read()
    assert len(join.epochs) == 2
    totals = {"epochs": n, "tuples": 52 * n, "late": 2 * n, "shed": 0, "matched": 7 * n + 2}
    assert join.totals.model_dump() == {"since": 0, "began": "2026-01-05T09:30:00.000Z", **totals}
    assert (join.streams["a"].timely, join.streams["b"].timely) == (30 * n, 20 * n)
    # Another checkpoint begins with epoch 0.
    writer.write("q", make_entry(0))
    assert read().totals.epochs == 1
    writer.close()
    other = MetricLines(path.with_suffix(".later"))
    other.write("q", make_entry(5012))
    other.write("q", make_entry(5013))
    reader = MetricsFile(path.with_suffix(".later"))
    assert (read().totals.since, read().totals.epochs) == (5012, 2)
    other.close()


def make_control(*requests: Request) -> dict[str, Any]:
    plan = ControlPlan.begin(Biclique((1, 1)))
    for request in requests:
        plan = change_plan(plan, request, Rules(max_units=8, can_shed=True))
    return {**encode_plan(plan), "outcomes": {}}


def test_a_generation_that_takes_over_later_is_a_change() -> None:
    before = ControlPlan.begin(Matrix(2, 1))
    after = change_plan(before, Request({"rows": 3}), Rules(max_units=8, preserved=(0,)))
    entries = [
        {
            **make_entry(epoch),
            "began": "2026-01-01T00:00:00+00:00",
            "control": {**encode_plan(plan), "outcomes": {}},
        }
        for epoch, plan in enumerate((before, after, after))
    ]
    (change,) = find_changes(entries)
    assert change.epoch == 1
    assert change.what == "Matrix(rows=3, columns=1) takes over later, on 3 units"


def test_an_epoch_without_tuples_hides_nothing(path: Path) -> None:
    brought = {
        "timely": 30,
        "late": 70,
        "shed": 0,
        "newest_us": 9_000_000,
        "lag_s": 2.5,
        "delay_us": 4_000_000,
    }
    nothing = {"timely": 0, "late": 0, "shed": 0, "newest_us": None, "lag_s": None, "delay_us": 4_000_000}
    writer = MetricLines(path)
    writer.write("q", make_entry(3, streams={"a": brought, "b": nothing}))
    writer.write("q", make_entry(4, streams={"a": nothing, "b": nothing}, units=[]))
    writer.close()
    (lines,) = (lines for _, lines in MetricsFile(path).read().values())
    (join,) = describe_query("q", "ended", lines, 10).joins
    assert [unit["received"] for unit in join.units] == [75, 25]
    assert [epoch.busy for epoch in join.epochs] == [0.25, None]
    known = join.streams["a"]
    assert (known.timely, known.late, known.lag_s) == (30, 70, 2.5)
    assert (known.newest_us, known.watermark_us) == (9_000_000, 5_000_000)
    assert join.streams["b"].watermark_us is None
    (finding,) = join.findings
    assert finding.startswith("70 of 100 tuples of stream 'a' of query q are late")


def test_the_route_describes_queries(path: Path) -> None:
    writer = MetricLines(path)
    plan = {"model": {"name": "biclique", "units": [1, 1]}, "words": {"the condition": "a.x < b.x"}}
    first, second = make_control(), make_control(Request({"units": (2, 1)}), Request(shed_factor=0.5))
    second["outcomes"] = {"1": "[MAX_UNITS] too many"}
    writer.write("q", make_entry(3, plan=plan))
    writer.write("scaled", make_entry(7, plan=plan, control=first))
    writer.write("scaled", make_entry(8, plan=plan, control=second))
    with run_service({}, metrics=[path]) as address:
        plain, scaled = httpx.get(f"{address}/queries").json()
        last = httpx.get(f"{address}/queries", params={"epochs": 1}).json()[1]
        path.unlink()
        gone = httpx.get(f"{address}/queries")
    writer.close()
    (join,) = plain["joins"]
    assert (plain["name"], plain["state"], plain["ended"]) == ("q", "running", None)
    assert join["words"] == {"the condition": "a.x < b.x"}
    assert [unit["role"] for unit in join["generations"][0]["units"]] == ["left", "right"]
    (epoch,) = join["epochs"]
    assert (epoch["tuples"], epoch["late"], epoch["matched"], epoch["lag_s"]) == (52, 2, 7, 2.5)
    assert (epoch["seconds"], epoch["phases_ms"]) == (0.8, {"addBatch": 500})
    assert join["last"]["units"][0]["received"] == 75
    assert (epoch["busy"], join["units"], join["findings"]) == (0.25, join["last"]["units"], [])
    (join,) = scaled["joins"]
    assert [change["epoch"] for change in join["changes"]] == [8, 8, 8]
    assert "Biclique(units=(2, 1)" in join["changes"][0]["what"]
    assert [change["what"] for change in join["changes"][1:]] == [
        "the shedder drops at least 50% of the tuples",
        "a request is refused: [MAX_UNITS] too many",
    ]
    assert len(join["generations"]) == 2
    assert join["shed_factor"] == 0.5
    assert len(last["joins"][0]["epochs"]) == 1
    assert (gone.status_code, gone.json()["condition"]) == (500, "NO_METRICS")
