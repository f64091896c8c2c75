"""The service answers as its OpenAPI says, to requests that it allows and to those that it does not."""

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from starlette.responses import Response

from tests.support.metric_entries import make_entry
from tests.support.service import HELD, add_epoch
from thetastream.runtime.observe.epoch_lines import MetricLines
from thetastream.service import Limits, app, build_app
from thetastream.stores import ParquetStore

schemathesis = pytest.importorskip("schemathesis", reason="it makes the requests: pip install schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
GenerationMode = schemathesis.GenerationMode


def make_app(folder: Path) -> FastAPI:
    store = ParquetStore(str(folder / "pairs"))
    store.describe(HELD)
    add_epoch(store, 0, 1, 2)
    MetricLines(folder / "metrics.jsonl").write("q", make_entry())
    service = build_app({"pairs": store}, metrics=[folder / "metrics.jsonl"], limits=Limits(seconds=5))
    # A request may take 10 s, and on a busy machine the first process takes longer to start.
    service.state.prepare()
    return service


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_answers_are_as_described(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A subscription has no end, and the requests here wait for the end of each answer.
    empty = Response(media_type="text/event-stream")
    monkeypatch.setattr(app, "Subscription", lambda *arguments: empty)
    # A service without a token refuses other hosts before it reads a request.
    host = {"Host": "localhost"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", make_app(tmp_path), headers=host)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 7
    for operation in operations:
        if mode == "negative" and not any(operation.iter_parameters()) and not list(operation.body):
            continue  # A request without parameters cannot be wrong.

        @settings(max_examples=6, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
        @given(operation.as_strategy(generation_mode=GenerationMode(mode)))
        def check(case: Any) -> None:
            if mode == "positive" and "name" in case.path_parameters:
                case.path_parameters["name"] = "pairs"
            # A question may have the right form and still ask for what is not there.
            case.call_and_validate(headers=host, excluded_checks=[checks.positive_data_acceptance])

        check()
