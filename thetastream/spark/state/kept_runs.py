"""The runs that a process keeps in memory between epochs."""

from collections import OrderedDict
from pathlib import Path

from thetastream.engine.store.run import Run

KEPT_BYTES = 1 << 26
"""The largest size of all runs that a process keeps."""


class KeptRuns:
    """Runs by the path of their file and by the layout of their index.

    The run that was used least recently is dropped first. Identifiers of segments are unique and segments
    never change, so a kept run is never wrong, whatever task of whatever query the process runs.
    """

    def __init__(self) -> None:
        self._runs: OrderedDict[Path, tuple[str, Run]] = OrderedDict()
        self._nbytes = 0

    def get(self, path: Path, layout: str) -> Run | None:
        found = self._runs.get(path)
        if found is None or found[0] != layout:
            return None
        self._runs.move_to_end(path)
        return found[1]

    def put(self, path: Path, layout: str, run: Run) -> None:
        self.pop(path)
        self._runs[path] = layout, run
        self._nbytes += run.nbytes
        while self._nbytes > KEPT_BYTES:
            _, (_, oldest) = self._runs.popitem(last=False)
            self._nbytes -= oldest.nbytes

    def pop(self, path: Path) -> None:
        found = self._runs.pop(path, None)
        if found is not None:
            self._nbytes -= found[1].nbytes

    def clear(self) -> None:
        self._runs.clear()
        self._nbytes = 0
