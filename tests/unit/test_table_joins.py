"""Conditions of joins of a stream with a table, with answers of Catalyst that stand in the test."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_event_terms import Answers
from thetastream.conditions import parse
from thetastream.core.how import HOWS
from thetastream.joins.compose import tables
from thetastream.lowering.query import Stream


class NoOptions:
    def without(self, names: object) -> "NoOptions":
        return self


@dataclass(frozen=True)
class Request:
    streams: Any
    on: str
    how: Any
    given: NoOptions = field(default_factory=NoOptions)
    within: None = None
    model: None = None
    columns: None = None
    problems: tuple[()] = ()

    @property
    def options(self) -> dict[str, Any]:
        return {}


class Instants(Answers):
    def type_of(self, text: str, aliases: Any) -> str | None:
        return "timestamp"


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_every_join_with_a_table_computes_elapsed_time(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on = "a.ts - t.ts <= INTERVAL 5 MINUTES"
    types = (("ts", "timestamp"),)
    inputs = (
        Stream("a", types, event_time="ts"),
        Stream("t", types, is_streaming=False),
    )
    read = SimpleNamespace(catalyst=Instants(zone_is_fixed=False), streams=inputs, schemas={}, problems=[])
    monkeypatch.setattr(tables, "read_streams", lambda *_: read)
    monkeypatch.setattr(tables, "read_condition", lambda *_: ((on,), [parse(on)], []))
    monkeypatch.setattr(tables, "read_result_time", lambda *_: False)
    frames = {known.alias: SimpleNamespace(isStreaming=known.is_streaming) for known in inputs}
    request: Any = Request(frames, on, HOWS[how])
    (step,) = tables.plan_with_tables(request, lambda _: pytest.fail("there is one stream")).steps
    (phrase,) = step.phrases
    micros = "INTERVAL '0.000001' SECOND * (unix_micros(a.ts) - unix_micros(t.ts))"
    assert phrase.text == f"({micros}) <= INTERVAL 5 MINUTES"
