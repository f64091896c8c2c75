"""Describes running queries for clients of the service, from the lines of their metrics."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

from pydantic import BaseModel

from thetastream.core.errors import ThetastreamError
from thetastream.runtime.control.model_json import decode_model
from thetastream.service.metrics_file import Entry, QueryLines, State


class EpochSummary(BaseModel):
    """The figures of one epoch of a join that charts show."""

    epoch: int
    began: str | None
    seconds: float
    phases_ms: dict[str, float]
    tuples: int
    late: int
    shed: int
    matched: int
    held: int
    state_bytes: int
    lag_s: float | None


class DrawnUnit(BaseModel):
    """The place of a unit in the drawing of its model."""

    unit: int
    column: float
    row: float
    role: str


class DrawnGeneration(BaseModel):
    """The drawing of a model whose units hold tuples."""

    model: str
    units: list[DrawnUnit]
    lines: list[tuple[int, int]]


class Change(BaseModel):
    """A change of the control plan, and the first epoch that reports it."""

    epoch: int
    began: str | None
    what: str


class RunningJoin(BaseModel):
    """One join of a query."""

    join: str
    words: dict[str, str]
    generations: list[DrawnGeneration]
    shed_factor: float
    last: dict[str, Any]
    epochs: list[EpochSummary]
    changes: list[Change]


class RunningQuery(BaseModel):
    """A query whose metrics the service reads."""

    name: str
    host: str
    state: State
    ended: str | None
    error: str | None
    joins: list[RunningJoin]


def describe_query(name: str, state: State, lines: QueryLines, n_epochs: int) -> RunningQuery:
    """Describe a query with the last ``n_epochs`` epochs of each of its joins."""
    joins = [_describe_join(join, list(epochs), n_epochs) for join, epochs in lines.joins.items()]
    return RunningQuery(
        name=name, host=lines.host, state=state, ended=lines.ended, error=lines.error, joins=joins
    )


def _describe_join(join: str, entries: Sequence[Entry], n_epochs: int) -> RunningJoin:
    last = entries[-1]
    control = last.get("control") or {}
    shown = entries[max(0, len(entries) - n_epochs) :]
    return RunningJoin(
        join=join,
        words=(last.get("plan") or {}).get("words", {}),
        generations=list(_draw_generations(last)),
        shed_factor=control.get("shed_factor", 0.0),
        last=last,
        epochs=[summarize_epoch(entry) for entry in shown],
        changes=list(find_changes(entries)),
    )


def summarize_epoch(entry: Entry) -> EpochSummary:
    """Summarize one epoch. Its phases have Spark's names, such as ``addBatch``."""
    phases = dict(entry["durations_ms"])
    total = phases.pop("triggerExecution", sum(phases.values()))
    streams = entry["streams"].values()
    return EpochSummary(
        epoch=entry["epoch"],
        began=entry["began"],
        seconds=total / 1000,
        phases_ms=phases,
        tuples=sum(stream["timely"] + stream["late"] for stream in streams),
        late=entry["late"],
        shed=entry["shed"],
        matched=entry["matched"],
        held=entry["held"],
        state_bytes=entry["state_bytes"],
        lag_s=max((stream["lag_s"] for stream in streams if stream["lag_s"] is not None), default=None),
    )


def find_changes(entries: Iterable[Entry]) -> Iterator[Change]:
    """Yield the changes between the control plans of consecutive epochs."""
    for before, entry in pairwise(entries):
        old, new = before.get("control"), entry.get("control")
        if old and new:
            for what in _compare_plans(old, new):
                yield Change(epoch=entry["epoch"], began=entry["began"], what=what)


def _compare_plans(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    known = [one["since"] for one in old["membership"]]
    for one in new["membership"]:
        if one["since"] not in known:
            yield f"{_name_model(one['model'])} stores new tuples on {len(one['slots'])} units"
    coming = new.get("coming")
    if coming and coming != old.get("coming"):
        units = len(coming["slots"])
        yield f"{_name_model(coming['model'])} takes over later, on {units} units"
    held = [one["since"] for one in new["membership"]]
    for one in old["membership"]:
        if one["since"] not in held:
            yield f"{_name_model(one['model'])} holds no tuples any more"
    if old["shed_factor"] != new["shed_factor"]:
        yield f"the shedder drops at least {new['shed_factor']:.0%} of the tuples"
    for name, outcome in new["outcomes"].items():
        if outcome and name not in old["outcomes"]:
            yield f"a request is refused: {outcome}"


def _name_model(values: dict[str, Any]) -> str:
    """Write a model as the user writes it. If this version does not know the model, write its fields."""
    try:
        return repr(decode_model(values))
    except ThetastreamError:
        return str(values)


def _draw_generations(entry: Entry) -> Iterator[DrawnGeneration]:
    """Draw each model whose units hold tuples. A model that this version does not know is left out."""
    control, plan = entry.get("control"), entry.get("plan")
    drawn = [(one["model"], one["slots"]) for one in control["membership"]] if control else []
    if not drawn and plan:
        drawn = [(plan["model"], None)]
    for values, slots in drawn:
        try:
            model = decode_model(values)
        except ThetastreamError:
            continue
        drawing = model.draw()
        units = [
            DrawnUnit(unit=unit, column=column, row=row, role=role)
            for unit, (column, row, role) in zip(
                slots or range(len(drawing.units)), drawing.units, strict=True
            )
        ]
        yield DrawnGeneration(model=repr(model), units=units, lines=list(islice(drawing.lines, 2000)))
