"""Running joins that clients see and change by the service."""

import json
from pathlib import Path

import httpx
import pytest

from tests.support.control_runs import Run, TasksRun
from tests.support.service import run_service
from thetastream.app.cli import main
from thetastream.engine.running_tasks import RunningTask
from thetastream.joins.handle import control
from thetastream.models import Biclique, Matrix, Split
from thetastream.runtime.control.request import Request
from thetastream.service import Grant
from thetastream.service.access import digest_token

OPERATOR, VIEWER = "the token of the operator", "the token of a viewer"


def send(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_clients_with_the_right_change_units_and_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, Split(2))
    checkpoint, audit = tmp_path / "checkpoint", tmp_path / "audit.jsonl"
    run.run_in(checkpoint)
    viewer = Grant("viewer", digest_token(VIEWER))
    options = {"controls": {"pairs": str(checkpoint)}, "token": OPERATOR, "tokens": [viewer], "audit": audit}
    with run_service({}, **options) as at, httpx.Client(base_url=at, timeout=20) as client:

        def ask(path: str = "/controls/pairs", token: str = OPERATOR, **body: object) -> httpx.Response:
            return client.post(path, headers=send(token), json=body)

        (found,) = client.get("/controls", headers=send(VIEWER)).json()["pairs"].values()
        assert (found["max_units"], found["policy"]) == (9, None)
        assert ask(token=VIEWER, sizes={"cores": 3}).status_code == 403
        assert client.get("/controls").status_code == 401
        for body, condition in (
            ({"sizes": {"units": [2, [1, 1]]}}, "CANNOT_SCALE"),
            ({"sizes": {"cores": 99}}, "MAX_UNITS"),
            ({"shed_factor": 0.5}, "BAD_REQUEST"),
            ({}, "BAD_REQUEST"),
            ({"policy": {"name": "tps"}}, "POLICY"),
            ({"policy": {"name": "two-phase-scaling", "high": "much"}}, "POLICY"),
            ({"model": {"name": "grid"}}, "BAD_REQUEST"),
            ({"remove_task": "both"}, "TASKS"),
            ({"join": "other", "sizes": {"cores": 3}}, "SEVERAL_JOINS"),
        ):
            answer = ask(**body)  # type: ignore[arg-type]
            assert (answer.status_code, answer.json()["condition"]) == (400, condition)
        assert ask("/controls/others", sizes={"cores": 3}).json()["condition"] == "UNKNOWN_QUERY"
        assert ask(size=3).status_code == 422
        assert run.spark.control.list_requests() == []
        first = ask(sizes={"cores": 3}, policy={"name": "two-phase-scaling", "capacity": "1 GB"}).json()
        run.run_in(checkpoint)
        (found,) = client.get("/controls", headers=send(OPERATOR)).json()["pairs"].values()
        assert found["requests"] == {first["request"]: "accepted"}
        assert found["policy"] == {"name": "two-phase-scaling", "capacity": "1 GB"}
        ask(model={"name": "matrix", "rows": 2}, policy={"name": "none"})
        run.run_in(checkpoint)
        assert (run.spark.plan.newest.model, run.spark.plan.policy) == (Matrix(2), None)
        (checkpoint / "offsets").rename(tmp_path / "moved")
        answer = client.get("/controls", headers=send(OPERATOR))
        assert (answer.status_code, str(tmp_path) in answer.text) == (200, False)
        assert answer.json()["pairs"]["error"]["condition"] == "NO_CHECKPOINT"
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert {(line["token"], line["right"], line["admitted"]) for line in lines} == {
        ("token", "control", True),
        ("token", "watch", True),
        ("viewer", "control", False),
        ("viewer", "watch", True),
    }


def test_clients_end_a_join_task_and_begin_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = TasksRun(tmp_path, monkeypatch, Biclique(1))

    def run_epoch() -> list[str]:
        run.run_in(tmp_path)
        return [*control(tmp_path).status()["tasks"]]

    assert run_epoch() == ["both"]
    control(tmp_path).request(Request(add=RunningTask("drawn", join=run.write_task(3))))
    assert run_epoch() == ["both", "drawn"]
    with (
        run_service({}, controls={"pairs": str(tmp_path)}, token=OPERATOR) as at,
        httpx.Client(base_url=at, headers=send(OPERATOR), timeout=20) as client,
    ):
        assert client.post("/controls/pairs", json={"add_task": "wide"}).json()["condition"] == "TASKS"
        assert client.post("/controls/pairs", json={"remove_task": "both"}).status_code == 200
        assert run_epoch() == ["drawn"]
        assert client.post("/controls/pairs", json={"add_task": "both"}).status_code == 200
        assert run_epoch() == ["drawn", "both"]


def test_a_service_that_changes_queries_needs_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("THETASTREAM_TOKEN", raising=False)
    assert main(["serve", "--control", str(tmp_path)]) == 1
    assert "[TOKEN] whoever may change a query must send a token" in capsys.readouterr().err
    monkeypatch.setenv("THETASTREAM_TOKEN", OPERATOR)
    assert main(["serve", "--control", str(tmp_path)]) == 1
    assert "[NO_CHECKPOINT]" in capsys.readouterr().err
