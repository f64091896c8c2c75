"""A store of chunks in memory, with a log in a folder: what stores of chunks share, without a database."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from thetastream.results.chunks import Chunk, ChunkStore, ChunkTable, Place
from thetastream.results.version_log import VersionLog


class MemoryTable(ChunkTable):
    """Chunks and keys in dictionaries. It counts the chunks that are read."""

    def __init__(self) -> None:
        self.chunks: dict[Place, bytes] = {}
        self.keys: set[tuple[int, bytes, Place]] = set()
        self.n_read = 0

    def make(self) -> None:
        """Do nothing: there are no tables."""

    def write(self, name: str, chunks: Sequence[Chunk]) -> None:
        self.chunks.update({(name, one.number): one.data for one in chunks})
        self.keys.update((*key, (name, one.number)) for one in chunks for key in one.keys)

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        return self.read([place for place in self.chunks if place[0] in names])

    def read(self, places: Sequence[Place]) -> Iterator[bytes]:
        self.n_read += len(places)
        return iter([self.chunks[place] for place in places if place in self.chunks])

    def find(self, column: int, low: bytes | None, high: bytes | None, limit: int) -> list[Place] | None:
        found = [
            place
            for number, value, place in sorted(self.keys)
            if number == column and (low is None or low <= value) and (high is None or value <= high)
        ]
        return list(dict.fromkeys(found)) if len(found) <= limit else None

    def list_names(self) -> Iterator[str]:
        return iter({name for name, _ in self.chunks})

    def remove(self, name: str, chunks: Sequence[Chunk]) -> None:
        self.keys.difference_update((*key, (name, one.number)) for one in chunks for key in one.keys)
        for place in [place for place in self.chunks if place[0] == name]:
            del self.chunks[place]


@dataclass(frozen=True)
class MemoryStore(ChunkStore):
    """A store over a ``MemoryTable``."""

    path: str
    table: MemoryTable = field(default_factory=MemoryTable)

    kind: ClassVar[str] = "memory"

    @property
    def name(self) -> str:
        return self.path

    @property
    def log(self) -> VersionLog:
        return VersionLog(self.path)

    @property
    def chunks(self) -> MemoryTable:
        return self.table
