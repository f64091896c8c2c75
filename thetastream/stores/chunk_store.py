"""A store whose rows are chunks in the tables of a database, beside a log of commits.

A task writes its chunks under a name that no other attempt has. They are results when a commit names them, so
a commit moves no rows. ``sweep`` removes the chunks that no commit will name.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from thetastream.errors import StoreError
from thetastream.stores.chunk_stage import ChunkStage
from thetastream.stores.chunk_table import ChunkTable
from thetastream.stores.chunks import CHUNK_ROWS, Chunk, KeyBytes, Place, decode, read_chunks, unseal_chunk
from thetastream.stores.description import Description
from thetastream.stores.key_bytes import has_key_bytes, write_key
from thetastream.stores.logged import LoggedStore
from thetastream.stores.selection import Selection
from thetastream.stores.staged import Origin, Stage, Staged
from thetastream.stores.sweeping import Sweeping

ALL_ENTRIES = 1 << 31
"""A limit that no question reaches."""
LEAST_LIMIT = 1000
"""The least limit of a question. A question reads all chunks if it has more index entries than its limit."""


class ChunkStore(LoggedStore):
    """A store of chunks."""

    @property
    @abstractmethod
    def chunks(self) -> ChunkTable:
        """The tables that hold the chunks."""

    def describe(self, description: Description) -> None:
        self.chunks.make()
        super().describe(description)

    def open_stage(self, origin: Origin, description: Description) -> Stage:
        return ChunkStage(self.chunks, origin, description)

    def open_staged(self, staged: Iterable[Staged], selection: Selection) -> pa.Table:
        description, named = self.description, list(staged)
        places = self._find_places(named, selection, description)
        wanted = {place for one in named for place in _list_places(one)} if places is None else set(places)
        tables, found = [description.schema.empty_table()], set()
        for data in self._read(named, places):
            try:
                place, body = unseal_chunk(data)
            except ValueError as error:
                raise self._make_damaged(f"it is altered: {error}") from None
            if place not in wanted or place in found:
                raise self._make_damaged(f"chunk {place[1]} of {place[0]} is at the place of another one")
            found.add(place)
            rows = decode(body)
            tables.append(rows if selection.filter is None else rows.filter(selection.filter))
        if len(found) < len(wanted):
            raise self._make_damaged("some are gone. If they were forgotten while you read, read again")
        return pa.concat_tables(tables)

    def _make_damaged(self, why: str) -> StoreError:
        what = f"{self.name} must have all chunks of rows that its commits name, and one is not there"
        return StoreError("STORE_DAMAGED", f"{what}: {why}")

    def find_damage(self, staged: Sequence[Staged], description: Description) -> Iterator[str]:
        """Yield a sentence for each part whose chunks or whose entries of the index are damaged or gone."""
        for one in staged:
            try:
                rows = self.open_staged([one], Selection())
                chunks = read_chunks(self.chunks.read_all([one.name]), description)
            except StoreError as error:
                yield f"{one.name}: {error.message}"
                continue
            if rows.num_rows != one.rows:
                yield f"{one.name} must have {one.rows} rows; it has {rows.num_rows}"
            yield from self._find_lost_keys(one.name, chunks)

    def _find_lost_keys(self, name: str, chunks: Sequence[Chunk]) -> Iterator[str]:
        places: dict[KeyBytes, set[Place]] = {}
        for chunk in chunks:
            for key in chunk.keys:
                places.setdefault(key, set()).add((name, chunk.number))
        for (column, value), wanted in places.items():
            found = self.chunks.find(column, value, value, ALL_ENTRIES)
            if found is not None and not wanted <= set(found):
                yield f"{name} must have all entries of the index of keys, and those of {value!r} are gone"

    def sweep(self, grace_s: float = 3600) -> int:
        """Remove staged rows that no commit can name any more; return the number of removed names.

        Rows that ``forget`` has dropped stay for ``grace_s`` seconds, because readers may be reading them.
        """
        description, sweeping, swept = self.description, Sweeping(self, grace_s), 0
        for name in self.chunks.list_names():
            if sweeping.is_removable(name):
                chunks = read_chunks(self.chunks.read_all([name]), description)
                self.chunks.remove(name, chunks)
                swept += 1
        return swept

    def _read(self, staged: list[Staged], places: list[Place] | None) -> Iterator[bytes]:
        if places is None:
            return self.chunks.read_all([one.name for one in staged])
        return self.chunks.read(places)

    def _find_places(
        self, staged: list[Staged], selection: Selection, description: Description
    ) -> list[Place] | None:
        """Find the chunks with selected keys; None if all chunks must be read."""
        names = {one.name for one in staged}
        limit = LEAST_LIMIT + sum(one.rows for one in staged) // CHUNK_ROWS
        for column, low, high in sorted(list_ranges(selection, description), key=_has_several_values):
            places = self.chunks.find(column, low, high, limit)
            if places is not None:
                return [place for place in places if place[0] in names]
        return None


def _list_places(staged: Staged) -> Iterator[Place]:
    """List the places of all chunks of a part."""
    return ((staged.name, number) for number in range(staged.seal["chunks"]))


def list_ranges(
    selection: Selection, description: Description
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """List the selected ranges of key columns: (number of the column, lower end, upper end) as bytes."""
    for one in selection.ranges:
        end = one.high if one.low is None else one.low
        if one.column in description.keys and end is not None and has_key_bytes(end.type):
            low, high = (None if end is None else write_key(end) for end in (one.low, one.high))
            yield description.keys.index(one.column), low, high


def _has_several_values(wanted: tuple[Any, bytes | None, bytes | None]) -> bool:
    """Whether a range may have more than one value. Ranges of one value are looked up first."""
    return wanted[1] != wanted[2]
