"""The protocol of a database that keeps the rows of a store: chunks by name, and an index of their keys."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from thetastream.stores.chunks import Chunk, Place


class ChunkTable(ABC):
    """The tables of a database that hold chunks and an index of their keys."""

    @abstractmethod
    def make(self) -> None:
        """Make the tables unless they are there."""

    @abstractmethod
    def write(self, name: str, chunks: Sequence[Chunk]) -> None:
        """Write chunks, and then the keys by which they are found."""

    @abstractmethod
    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        """Read all chunks of these names."""

    @abstractmethod
    def read(self, places: Sequence[Place]) -> Iterator[bytes]:
        """Read single chunks."""

    @abstractmethod
    def find(self, column: int, low: bytes | None, high: bytes | None, limit: int) -> list[Place] | None:
        """Find the chunks with keys from ``low`` to ``high``, both inclusive; None is an open end.

        It returns None if the index does not answer such a range, or has more than ``limit`` entries for it.
        """

    @abstractmethod
    def list_names(self) -> Iterator[str]:
        """List the names of all staged rows."""

    @abstractmethod
    def remove(self, name: str, chunks: Sequence[Chunk]) -> None:
        """Remove the keys of these chunks, and then all chunks of the name."""
