"""Epochs as Spark runs them, in this process and without Java.

The control source, the routing step and the units are those that Spark runs. This module is Spark: the offset
log, the exchange, the state store and the timers. A crash at any step sets the state back to the last commit,
and the epoch runs again with the offsets of the log.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.support.local_run import add_hash
from thetastream.core.blocks import unpack
from thetastream.core.errors import StateError
from thetastream.core.identity import Identity, Part, digest
from thetastream.core.records import encode
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.shedding import Shedding
from thetastream.models.base import Model
from thetastream.runtime.choice import FittedSpec
from thetastream.runtime.control.access import ControlAccess
from thetastream.runtime.control.files import ControlFolder
from thetastream.runtime.control.plan import ControlPlan, Rules, decode_plan, encode_plan
from thetastream.runtime.emit import COUNTERS, BlockEmitter
from thetastream.runtime.epoch import Coordination, UnitEpoch
from thetastream.runtime.flow import RunContext
from thetastream.runtime.inbox_rows import COLUMNS
from thetastream.runtime.routing_step import make_routing_step
from thetastream.runtime.shed_loads import ShedLoads
from thetastream.spark.sources import control as source
from thetastream.spark.sources.control import ControlReader
from thetastream.spark.sources.control_and_mailbox import ControlledMailboxReader
from thetastream.spark.sources.mailbox import MailboxReader
from thetastream.spark.task_properties import read_task

QUERY: Identity = {"the model": Part("m", "m")}


class Crash(Exception):
    """The process ends here."""


class _Context:
    """What a Spark task knows of its epoch."""

    def __init__(self, epoch: int | None) -> None:
        self._properties = {"sql.streaming.queryId": "query"}
        if epoch is not None:
            self._properties["streaming.sql.batchId"] = str(epoch)

    def partitionId(self) -> int:
        return 0

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


class _Value:
    def __init__(self, cells: dict[Any, Any], key: int) -> None:
        self._cells, self._key = cells, key

    def exists(self) -> bool:
        return self._key in self._cells

    def get(self) -> Any:
        return self._cells.get(self._key)

    def update(self, value: Any) -> None:
        self._cells[self._key] = value

    def clear(self) -> None:
        self._cells.pop(self._key, None)


class _Parts:
    def __init__(self, cells: dict[Any, Any]) -> None:
        self._cells = cells

    def getValue(self, key: Any) -> Any:
        return self._cells.get(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self._cells[key] = value

    def removeKey(self, key: Any) -> None:
        self._cells.pop(key, None)


class _Timers:
    """The timers of a unit, and the times that Spark tells it."""

    def __init__(self, timers: set[int], watermark_ms: int, began_ms: int) -> None:
        self._timers, self._watermark_ms, self._began_ms = timers, watermark_ms, began_ms

    def registerTimer(self, time_ms: int) -> None:
        self._timers.add(time_ms)

    def deleteTimer(self, time_ms: int) -> None:
        self._timers.discard(time_ms)

    def getCurrentWatermarkInMs(self) -> int:
        return self._watermark_ms

    def getCurrentProcessingTimeInMs(self) -> int:
        return self._began_ms


class SparkEpochs:
    """A controlled query, epoch by epoch.

    Parameters
    ----------
    spec, model, rules
        The query, the model with which it starts, and what it allows.
    folder : Path
        An empty folder.
    patch : MonkeyPatch
    shedding : Shedding, optional
        The load shedder.
    width : int
        The number of columns of a result, without labels.
    labels : sequence of pyarrow.Field
        The columns of a result before those of its tuples.
    """

    def __init__(
        self,
        spec: EngineSpec,
        model: Model,
        rules: Rules,
        folder: Path,
        patch: pytest.MonkeyPatch,
        shedding: Shedding | None = None,
        width: int = 8,
        labels: Sequence[pa.Field] = (),
    ) -> None:
        self.width, self.labels = width, labels
        self.spec, self.model, self.rules, self.folder, self._patch = spec, model, rules, folder, patch
        self.shed = None
        if shedding is not None:
            self.shed = ShedLoads(shedding, str(folder / "box"), digest(QUERY))
        self.began_ms = -1
        """When the next epoch begins, in milliseconds since 1970."""
        self.is_timed = False
        """Whether tasks know only the time of their epoch, as inside ``foreachBatch`` on Spark Connect. Then
        there is no control."""
        patch.setattr(source, "LOOK_S", -1.0)
        self.offsets: list[dict[str, Any]] = []
        """The log of offsets of the control source."""
        self.state: dict[str, Any] = {"value": {}, "parts": defaultdict(dict), "timers": defaultdict(set)}
        self.start()

    def start(self) -> None:
        """Start the query, for the first time or again."""
        root = str(self.folder / "box")
        settings = {"root": root, "join": digest(QUERY), "rules": encode(self.rules)}
        plan = encode_plan(ControlPlan.begin(self.model))
        self.access: ControlAccess | None = ControlAccess(root, digest(QUERY))
        self.fitted = FittedSpec(self.spec, None, 0 if self.is_timed else self.rules.max_units)
        self.reader: Any = ControlReader(QUERY, settings, plan, None)
        if self.spec.has_messages:
            box = MailboxReader(root, QUERY, self.fitted.keys)
            self.reader = ControlledMailboxReader(box, self.reader, self.fitted.keys)
            if self.is_timed:
                self.access, self.reader = None, box

    @property
    def control(self) -> ControlFolder:
        """The control folder."""
        control = self.offsets[-1]["control"]
        return ControlFolder(control["root"], control["name"])

    @property
    def plan(self) -> ControlPlan:
        """The plan of the newest offset."""
        return decode_plan(self.offsets[-1]["control"]["plan"])

    def list_living(self) -> list[int]:
        """List the grouping keys of the units that have not ended, in order."""
        heard = {key: json.loads(value[0])["heard"] for key, value in self.state["value"].items()}
        return sorted(key for key, (epoch, *_) in heard.items() if epoch >= 0)

    def log_offset(self) -> None:
        """Ask the source for the offset of the next epoch, and write it to the log."""
        start = self.offsets[-1] if self.offsets else self.reader.initialOffset()
        self.offsets.append(self.reader.latestOffset(deepcopy(start), ReadAllAvailable()))

    def run(
        self, batches: Sequence[pa.RecordBatch], watermark_us: int | None, crash: int | None = None
    ) -> list[pa.RecordBatch]:
        """Run the epoch whose offset is the last one of the log; return its results.

        After an error, the state is that of the last commit.

        It raises Crash before its step ``crash``: 0 is the control source, then come the units.
        """
        epoch = len(self.offsets) - 1
        self._patch.setattr(TaskContext, "get", lambda: _Context(None if self.is_timed else epoch))
        before = deepcopy(self.state)
        try:
            found = list(self._run(epoch, batches, watermark_us, crash))
        except (Crash, StateError):
            self.state = before
            raise
        self.reader.commit(self.offsets[-1])
        return found

    def _run(
        self, epoch: int, batches: Sequence[pa.RecordBatch], watermark_us: int | None, crash: int | None
    ) -> Iterator[pa.RecordBatch]:
        steps = iter(range(1 << 30))

        def step() -> None:
            if next(steps) == crash:
                raise Crash

        step()
        # 1. The sources and the exchange.
        rows = list(self._read_notices(epoch))
        for stream, batch in enumerate(batches):
            route = make_routing_step(
                self.fitted,
                stream,
                Coordination(self.shed, self.access),
                is_streaming=True,
                spreads_equal=True,
                read_task=read_task,
            )
            hashed = iter([add_hash(batch)] if batch.num_rows else [])
            rows += [row for piece in route(hashed) for row in piece.to_pylist()]
        by_key: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            by_key[row["unit"]].append(row)
        # 2. The units with rows, and then those whose timers have fired.
        watermark_ms = (watermark_us or 0) // 1000
        errors = []
        for key in sorted(by_key):
            step()
            try:
                yield from self._call(key, pd.DataFrame(by_key[key])[list(COLUMNS)], watermark_ms)
            except StateError as error:
                errors.append(error)  # The units of other Spark tasks run on.
        if errors:
            raise errors[0]
        for key in sorted(self.state["timers"]):
            fired = {time for time in self.state["timers"][key] if time <= watermark_ms}
            for _ in fired:
                step()
                yield from self._call(key, None, watermark_ms)
            self.state["timers"][key] -= fired
        step()

    def _read_notices(self, epoch: int) -> Iterator[dict[str, Any]]:
        end = self.offsets[-1]
        start = self.offsets[-2] if epoch else self.reader.initialOffset()
        if start == end and epoch:
            return
        for partition in self.reader.partitions(deepcopy(start), deepcopy(end)):
            for batch in self.reader.read(partition):
                yield from batch.to_pylist()

    def _call(self, key: int, rows: pd.DataFrame | None, watermark_ms: int) -> Iterator[pa.RecordBatch]:
        fields = [*self.labels, *(pa.field(f"c{n}", pa.int64()) for n in range(self.width))]
        emitter = BlockEmitter(pa.schema([*fields, pa.field(COUNTERS, pa.string())]))
        box, cache = (str(self.folder / name) for name in ("box", "cache"))
        run = RunContext(mailbox=box, cache_folder=cache)
        unit = UnitEpoch(
            self.fitted, QUERY, emitter, run, read_task, coordination=Coordination(self.shed, self.access)
        )
        timers = _Timers(self.state["timers"][key], watermark_ms, self.began_ms)
        value, parts = _Value(self.state["value"], key), _Parts(self.state["parts"][key])
        frames = None if rows is None else iter([rows])
        for frame in unit.run(key, frames, timers, value, parts, timers):
            for block in frame["block"].dropna():
                yield unpack(block)


def count_results(batches: Sequence[pa.RecordBatch], *ids: int) -> Counter[Any]:
    """Count the results by the columns ``ids``. Rows of counters have no ids."""
    found: Counter[Any] = Counter()
    for batch in batches:
        results = zip(*(batch.column(n).to_pylist() for n in ids), strict=True)
        found.update(result for result in results if result[0] is not None)
    return found
