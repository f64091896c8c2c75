"""Finds the newest offset of the control source of a join, from any process.

A running query of this process tells its offsets in its progress. For other queries, they are read from the
checkpoint.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from thetastream.core.errors import StateError, ThetastreamError
from thetastream.core.folder import Folder, hide_secrets, split_path
from thetastream.core.records import decode
from thetastream.runtime.checkpoint_files import find_last_epoch, read_epoch
from thetastream.runtime.control.files import ControlFolder
from thetastream.runtime.control.plan import ControlPlan, Rules, decode_plan

WAIT_S = 60.0
"""How long ``control`` waits for the first epoch of a query that has been started."""
POLL_S = 0.1


@dataclass(frozen=True)
class NewestOffset:
    """The newest offset of one controlled join."""

    control: Mapping[str, Any]

    @property
    def plan(self) -> ControlPlan:
        """The plan that holds from the next epoch on."""
        return decode_plan(self.control["plan"])

    @property
    def rules(self) -> Rules:
        """What the query allows."""
        return decode(Rules, self.control["rules"])

    @property
    def folder(self) -> ControlFolder:
        """The control folder."""
        return ControlFolder(self.control["root"], self.control["name"])


def wait_for_progress(query: Any) -> Iterator[dict[str, Any]]:
    """Yield the offsets of all sources in the newest report of a query; wait for the first report."""
    until_s = time.monotonic() + WAIT_S
    while not (report := query.lastProgress):
        if not query.isActive or time.monotonic() > until_s:
            raise StateError("NO_EPOCH", f"query {query.id} must have run an epoch; it has run none yet")
        time.sleep(POLL_S)
    yield from read_offsets(report if isinstance(report, dict) else json.loads(report.json))


def read_checkpoint(path: str) -> list[dict[str, Any]]:
    """Read the offsets of all sources in the newest offsets of a checkpoint."""
    what = f"{hide_secrets(path)} must be the checkpoint of a streaming query"
    try:
        folder = Folder(*split_path(path))
        epoch = find_last_epoch(folder.list_files("offsets"))
        if epoch < 0:
            raise ThetastreamError("NO_CHECKPOINT", f"{what}, and no epoch of a query has begun there")
        return read_epoch(folder, "offsets", epoch)[1]
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ThetastreamError("NO_CHECKPOINT", f"{what}; reading it failed: {error}") from None


def read_offsets(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the newest offset of each source in a progress report that has fields."""
    for source in report.get("sources", ()):
        offset = source.get("endOffset")
        if isinstance(offset, str) and offset.startswith("{"):
            offset = json.loads(offset)
        if isinstance(offset, dict):
            yield offset
