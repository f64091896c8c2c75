"""Describes running queries for clients of the service, from the lines of their metrics.

``th.export_metrics(spark, json_lines=...)`` writes the file: a line for each epoch of a join, and a line for
each query that has ended. The service reads it while queries add lines to it, asks no query, and keeps the
last epochs of each join in memory.
"""

import json
import socket
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.runtime.control.plan import decode_model
from thetastream.runtime.observe.epoch_lines import count_tuples, is_locked
from thetastream.runtime.observe.health import list_findings

State = Literal["running", "ended", "failed", "lost"]

Entry = dict[str, Any]

DAMAGES = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""The errors of lines that are damaged, or written by something else."""
KEPT_EPOCHS = 300
"""The number of epochs of each join that stay in memory."""
STREAM_COUNTERS = ("timely", "late", "shed")
"""The counters of a stream that are summed."""
LARGEST_READ = 16 << 20
"""The service reads only so many bytes at the end of a longer file."""


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
    busy: float | None
    """The share of the epoch in which the units joined, stored and expired tuples, on average."""


class JoinTotals(BaseModel):
    """Sums over all epochs of a join since one of them, which is 0 if they are all epochs of the query.

    It is later if the file of metrics has no earlier lines, or if the service reads only its end.
    """

    since: int
    began: str | None
    epochs: int = 0
    tuples: int = 0
    late: int = 0
    shed: int = 0
    matched: int = 0


class StreamSummary(BaseModel):
    """The tuples that a stream brought in the epochs of the totals, and where it stands."""

    model_config = ConfigDict(validate_assignment=True)

    timely: int = 0
    late: int = 0
    shed: int = 0
    newest_us: int | None = None
    watermark_us: int | None = None
    """The watermark of this stream alone: its latest event time minus its delay."""
    lag_s: float | None = None
    """The lag in the last epoch in which it brought tuples."""


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
    totals: JoinTotals
    epochs: list[EpochSummary]
    """The last epochs, as many as were asked for."""
    streams: dict[str, StreamSummary]
    units: list[dict[str, Any]]
    """The counters of each unit in the last epoch that brought tuples."""
    changes: list[Change]
    findings: list[str]
    """What a person should know about the join, such as skew, and what to do about it."""


class RunningQuery(BaseModel):
    """A query whose metrics the service reads."""

    name: str
    host: str
    state: State
    since: str | None
    """The beginning of the first epoch of the present run that the service has read."""
    restarts: int
    """How often the query has begun to run again since the first line that the service has read."""
    ended: str | None
    error: str | None
    joins: list[RunningJoin]


@dataclass
class Sums:
    """The sums of the epochs of a join."""

    since: int
    """The first epoch that is counted."""
    began: str | None
    counts: Counter[str]
    streams: dict[str, Counter[str]]
    """The counters of each stream by its alias."""

    @classmethod
    def of(cls, entry: Entry) -> "Sums":
        """Return the counters of one epoch."""
        counts = Counter(epochs=1, tuples=count_tuples(entry))
        counts.update({name: int(entry[name]) for name in ("late", "shed", "matched")})
        streams = {
            str(alias): Counter({name: int(brought.get(name, 0)) for name in STREAM_COUNTERS})
            for alias, brought in entry["streams"].items()
        }
        return cls(int(entry["epoch"]), _read_text(entry["began"]), counts, streams)

    def change(self, other: "Sums", sign: Literal[1, -1]) -> None:
        """Add the sums of an epoch, or take them back."""
        for mine, theirs in ((self.counts, other.counts), *self._pair_streams(other)):
            (mine.update if sign > 0 else mine.subtract)(theirs)

    def _pair_streams(self, other: "Sums") -> Iterator[tuple[Counter[str], Counter[str]]]:
        for alias, counts in other.streams.items():
            yield self.streams.setdefault(alias, Counter()), counts

    def copy(self) -> "Sums":
        """Return a copy that later epochs do not change."""
        streams = {alias: counts.copy() for alias, counts in self.streams.items()}
        return replace(self, counts=self.counts.copy(), streams=streams)


@dataclass
class QueryLines:
    """The lines of a file about one query."""

    host: str = ""
    ended: str | None = None
    error: str | None = None
    """The error with which the query has ended; None if it was stopped."""
    run: str | None = None
    """Spark's id of the present run; None if no line has told it."""
    since: str | None = None
    restarts: int = 0
    joins: dict[str, deque[Entry]] = field(default_factory=dict)
    """The last epochs of each join, in order."""
    sums: dict[str, Sums] = field(default_factory=dict)
    """The sums of all epochs of each join."""

    def add(self, entry: Entry) -> None:
        """Add one line."""
        self.host = str(entry.get("host", ""))
        self.ended, self.error = entry.get("ended"), entry.get("error")
        if self.ended is not None:
            return
        run = entry.get("run")
        if self.since is None or self.run != run:
            self.restarts += self.run is not None
            self.run, self.since = run, entry["began"]
        join, own = str(entry["join"]), Sums.of(entry)
        epochs, sums = self.joins.setdefault(join, deque(maxlen=KEPT_EPOCHS)), self.sums.get(join)
        # A query that was stopped while an epoch ran reports this epoch again.
        while epochs and epochs[-1]["epoch"] >= entry["epoch"]:
            again = epochs.pop()
            if sums is not None:
                sums.change(Sums.of(again), -1)
        if sums is None or not epochs:
            # Without an epoch before this one, the query has begun anew, in another checkpoint.
            self.sums[join] = own
        else:
            sums.change(own, 1)
        epochs.append(entry)

    def copy(self) -> "QueryLines":
        """Return a copy that later lines do not change."""
        joins = {join: epochs.copy() for join, epochs in self.joins.items()}
        return replace(self, joins=joins, sums={join: sums.copy() for join, sums in self.sums.items()})

    def find_state(self, is_file_written: bool) -> State:
        """Find out whether the query runs, has ended, has failed or is lost.

        A query is lost if its program has ended without a line about the end. Only programs on this machine
        are checked. A query on another machine runs until a line says that it has ended.
        """
        if self.ended is not None:
            return "ended" if self.error is None else "failed"
        return "running" if is_file_written or self.host != socket.gethostname() else "lost"


class MetricsFile:
    """One file of metrics. Its methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._inode = self._offset = 0
        self._queries: dict[str, QueryLines] = {}

    def read(self) -> dict[str, tuple[State, QueryLines]]:
        """Read the new lines of the file; return each query of the file by its name, with its state.

        Raises
        ------
        QueryError
            NO_METRICS if the file cannot be read.
        """
        with self._lock:
            try:
                is_file_written = is_locked(self._path)
                self._read_new()
            except OSError as error:
                raise QueryError("NO_METRICS", f"the file of metrics cannot be read: {error}") from error
            return {
                name: (lines.find_state(is_file_written), lines.copy())
                for name, lines in self._queries.items()
            }

    def _read_new(self) -> None:
        known = self._path.stat()
        if known.st_ino != self._inode or known.st_size < self._offset:
            # The path names another file now, because somebody has moved or cut the file that was read.
            self._inode, self._offset = known.st_ino, max(0, known.st_size - LARGEST_READ)
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        # The last line may not be complete yet. Then the next call reads it.
        complete = text[: text.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            self._add(line)

    def _add(self, line: bytes) -> None:
        # What is no line may be a part of one: reading began inside it, or the disk was full when it was
        # written. Or somebody else has written it.
        with suppress(*DAMAGES):
            entry = json.loads(line, parse_constant=_refuse_constant)
            self._queries.setdefault(str(entry["query"]), QueryLines()).add(entry)


def _refuse_constant(name: str) -> None:
    """Refuse a number that JSON does not have, because no answer can have it."""
    raise ValueError(name)


def describe_query(name: str, state: State, lines: QueryLines, n_epochs: int) -> RunningQuery:
    """Describe a query with the last ``n_epochs`` epochs of each of its joins."""
    joins = [
        _describe_whole(name, join, list(epochs), lines.sums[join], n_epochs)
        for join, epochs in lines.joins.items()
    ]
    return RunningQuery(
        name=name,
        host=lines.host,
        state=state,
        since=_read_text(lines.since),
        restarts=lines.restarts,
        ended=_read_text(lines.ended),
        error=_read_text(lines.error),
        joins=[one for one in joins if one is not None],
    )


def _read_text(value: object) -> str | None:
    return None if value is None else str(value)


def _describe_whole(
    query: str, join: str, entries: list[Entry], sums: Sums, n_epochs: int
) -> RunningJoin | None:
    """Describe one join of a query by those of its epochs whose lines are whole; None if none is."""
    with suppress(*DAMAGES):
        return _describe_join(query, join, entries, sums, n_epochs)
    whole: list[Entry] = []
    for entry in entries:
        with suppress(*DAMAGES):
            _describe_join(query, join, [entry], sums, 1)
            _describe_join(query, join, [*whole[-1:], entry], sums, 1)
            whole.append(entry)
    with suppress(*DAMAGES):
        return _describe_join(query, join, whole, sums, n_epochs)
    return None


def _describe_join(query: str, join: str, entries: Sequence[Entry], sums: Sums, n_epochs: int) -> RunningJoin:
    last = entries[-1]
    control = last.get("control") or {}
    shown = entries[max(0, len(entries) - n_epochs) :]
    return RunningJoin(
        join=join,
        words=(last.get("plan") or {}).get("words", {}),
        generations=list(_draw_generations(last)),
        shed_factor=control.get("shed_factor", 0.0),
        last=last,
        totals=JoinTotals(since=sums.since, began=sums.began, **sums.counts),
        epochs=[summarize_epoch(entry) for entry in shown],
        streams=summarize_streams(entries, sums.streams),
        units=next(filter(_has_tuples, reversed(entries)), last)["units"],
        changes=list(find_changes(entries)),
        findings=list_findings(query, entries),
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
        tuples=count_tuples(entry),
        late=entry["late"],
        shed=entry["shed"],
        matched=entry["matched"],
        held=entry["held"],
        state_bytes=entry["state_bytes"],
        lag_s=max((stream["lag_s"] for stream in streams if stream["lag_s"] is not None), default=None),
        busy=entry.get("busy_ms", 0) / (total * len(entry["units"])) if total and entry["units"] else None,
    )


def _has_tuples(entry: Entry) -> bool:
    return count_tuples(entry) > 0


def summarize_streams(
    entries: Iterable[Entry], counted: Mapping[str, Mapping[str, int]]
) -> dict[str, StreamSummary]:
    """Say where each stream stands after epochs, with its counters. Epochs without tuples change nothing."""
    found: dict[str, StreamSummary] = {}
    for entry in entries:
        for alias, brought in entry["streams"].items():
            mine = found.setdefault(alias, StreamSummary(**counted.get(alias, {})))
            newest_us = brought["newest_us"]
            if newest_us is not None:
                mine.newest_us = newest_us if mine.newest_us is None else max(mine.newest_us, newest_us)
                mine.lag_s = brought["lag_s"]
                delay_us = brought.get("delay_us")
                mine.watermark_us = None if delay_us is None else mine.newest_us - delay_us
    return found


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
    """Draw each model whose units hold tuples. A model that this version does not know is left out.

    A lookup in a table has no model.
    """
    control, plan = entry.get("control"), entry.get("plan")
    drawn = [(one["model"], one["slots"]) for one in control["membership"]] if control else []
    if not drawn and plan and "model" in plan:
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
