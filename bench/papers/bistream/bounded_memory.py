"""Units with bounded memory: what does not fit lies on a disk, from which every probe reads it again.

A unit keeps sorted runs of tuples. A new run takes what is left of the memory, and the rest of it is written
to the disk. A run that is opened, by a probe or because it is merged, reads its rest. So an epoch reads

    max(0, bytes of the unit - memory)         once, for all probes of the epoch together

A unit that does not probe in an epoch reads nothing. The bytes are counted; nothing is read from a real disk.
"""

from collections.abc import Sequence

from bench.core.internals import LocalJoin, MemoryStore, Model, SegmentMeta, SortedRun, UnitSpec
from bench.core.replay import Step


class BoundedStore(MemoryStore):
    """The runs of one unit, of which ``memory`` bytes are in memory."""

    def __init__(self, memory: float) -> None:
        super().__init__()
        self._free = memory
        self._rests: dict[str, float] = {}
        """For each written run, its bytes that are on the disk."""
        self.disk_bytes = 0.0
        """Bytes that were read and written so far."""

    @property
    def is_full(self) -> bool:
        return any(self._rests.values())

    def write(self, meta: SegmentMeta) -> int:
        inside = min(self._free, meta.nbytes)
        self._free -= inside
        self._rests[meta.id] = meta.nbytes - inside
        self.disk_bytes += meta.nbytes - inside
        return super().write(meta)

    def get(self, meta: SegmentMeta) -> SortedRun:
        self.disk_bytes += self._rests.get(meta.id, 0)
        return super().get(meta)

    def drop(self, meta: SegmentMeta) -> None:
        if meta.id in self._rests:
            self._free += meta.nbytes - self._rests.pop(meta.id)
        super().drop(meta)


class BoundedJoin(LocalJoin):
    """A join whose units have ``memory`` bytes each."""

    def __init__(self, unit: UnitSpec, model: Model, memory: float) -> None:
        super().__init__(unit, model)
        self.bounded = [BoundedStore(memory) for _ in range(model.n_units)]
        self._stores = list(self.bounded)

    @property
    def disk_bytes(self) -> list[float]:
        """The bytes that each unit has read and written so far."""
        return [store.disk_bytes for store in self.bounded]


def last_s(step: Step, disk_bytes: Sequence[float], bytes_per_s: float) -> float:
    """Compute how long an epoch lasts if each unit has a core and a disk."""
    return max(cpu + nbytes / bytes_per_s for cpu, nbytes in zip(step.cpu_s, disk_bytes, strict=True))
