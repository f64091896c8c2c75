"""A store of chunks in memory, with a log in a folder: what stores of chunks share, without a database."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from thetastream.results.chunks import Chunk, ChunkBackend, Place
from thetastream.results.store import Store
from thetastream.results.version_log import VersionLog


class MemoryTable:
    """Chunks and keys. It counts the chunks that are read."""

    def __init__(self) -> None:
        self.chunks: dict[Place, bytes] = {}
        self.keys: set[tuple[int, bytes, Place]] = set()
        self.n_read = 0


class MemoryBackend(ChunkBackend, VersionLog):
    """Chunks and keys in dictionaries, and entries in a folder."""

    def __init__(self, root: str, table: MemoryTable) -> None:
        super().__init__(root)
        self._table = table

    def names(self) -> Iterator[tuple[str, None]]:
        return iter({(name, None) for name, _ in self._table.chunks})

    def write(self, name: str, chunks: Sequence[Chunk]) -> None:
        self._table.chunks.update({(name, one.number): one.data for one in chunks})
        self._table.keys.update((*key, (name, one.number)) for one in chunks for key in one.keys)

    def fetch(self, wanted: Mapping[str, Sequence[int] | None]) -> Iterator[bytes]:
        for (name, number), data in list(self._table.chunks.items()):
            if name in wanted and number in (wanted[name] or (number,)):
                self._table.n_read += 1
                yield data

    def find(self, column: int, low: bytes | None, high: bytes | None, limit: int) -> list[Place] | None:
        found = [
            place
            for number, value, place in sorted(self._table.keys)
            if number == column and (low is None or low <= value) and (high is None or value <= high)
        ]
        return list(dict.fromkeys(found)) if len(found) <= limit else None

    def drop(self, name: str, chunks: Sequence[Chunk]) -> None:
        self._table.keys.difference_update((*key, (name, one.number)) for one in chunks for key in one.keys)
        for place in [place for place in self._table.chunks if place[0] == name]:
            del self._table.chunks[place]


@dataclass(frozen=True)
class MemoryStore(Store):
    """A store over a ``MemoryTable``."""

    path: str
    table: MemoryTable = field(default_factory=MemoryTable)

    kind: ClassVar[str] = "memory"

    @property
    def name(self) -> str:
        return self.path

    @property
    def backend(self) -> MemoryBackend:
        return MemoryBackend(self.path, self.table)
