"""The log of a store in Cassandra, over a table in memory."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from thetastream.core.errors import StoreError
from thetastream.results.log import NO_SEAL, Log, read_seal, seal_entry
from thetastream.stores import cassandra
from thetastream.stores.cassandra import CassandraBackend


class MemoryTables:
    """Answers the statements with which the log reads its table: part and version -> entry."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], str] = {}

    def quote(self, suffix: str) -> str:
        return suffix

    def find(self, text: str, values: Sequence[int]) -> Any:
        if "ORDER BY" in text:
            found = [version for part, version in self.rows if part == values[0]]
            return (max(found),) if found else None
        entry = self.rows.get((values[0], values[1]))
        return None if entry is None else (entry,)

    def run(self, text: str, values: Sequence[Any]) -> Iterator[tuple[int, str]]:
        if text.startswith("INSERT"):
            self.rows[values[0], values[1]] = values[2]
            return iter(())
        part, first = values
        return iter(sorted((at[1], e) for at, e in self.rows.items() if at[0] == part and at[1] >= first))


def fill(monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryTables, Log, list[str]]:
    """Write a log of ten entries in partitions of four rows; return its table, the log and the seals."""
    monkeypatch.setattr(cassandra, "LOG_ROWS", 4)
    tables, seals = MemoryTables(), [NO_SEAL]
    backend = CassandraBackend(tables)  # type: ignore[arg-type]
    for n in range(10):
        text = seal_entry(n, seals[-1], {"n": n})
        tables.rows[n // 4, n] = text
        seals.append(read_seal(text))
    backend.mark(seal_entry(9, seals[-1], {}))
    log = Log("pairs", backend, "entry {n} of the log of {name}")
    assert [entry["version"] for entry in log.read_after(0, seals[1])] == list(range(1, 10))
    return tables, log, seals


@pytest.mark.parametrize("has_note", [True, False])
def test_a_gap_at_the_end_of_a_partition_is_seen(monkeypatch: pytest.MonkeyPatch, has_note: bool) -> None:
    """Without the note, the log ended at the gap without a word, and a writer wrote entry 3 again."""
    tables, log, seals = fill(monkeypatch)
    del tables.rows[0, 3]
    if not has_note:
        del tables.rows[-1, -1]
    tables.rows[1, 6] = tables.rows[1, 6].replace('"n"', '"m"')
    assert log.find_newest() == 9
    for version in (0, 2):
        with pytest.raises(StoreError, match=r"STORE_DAMAGED.*entry 3 .* is gone, and entry 4 is there"):
            list(log.read_after(version, seals[version + 1]))
    problems = list(log.find_damage())
    assert any("entries 3 to 3" in one for one in problems)
    assert any("entry 6 " in one for one in problems)


def test_a_partition_that_is_gone_is_seen_by_the_note(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, log, seals = fill(monkeypatch)
    for n in range(4, 8):
        del tables.rows[1, n]
    for call in (log.find_newest, lambda: list(log.read_after(0, seals[1]))):
        with pytest.raises(StoreError, match=r"STORE_DAMAGED.*entry 4 .*gone.*had entry 9"):
            call()
    assert any("entries 4 to 7" in one for one in log.find_damage())
