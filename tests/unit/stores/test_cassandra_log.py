"""The log of a store in Cassandra, over a table in memory."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from thetastream.core.errors import StoreError
from thetastream.results.sealed_entry import NO_SEAL, read_seal, seal_entry
from thetastream.stores import cassandra
from thetastream.stores.cassandra import CassandraLog


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
        part, after = values
        return iter(sorted((at[1], e) for at, e in self.rows.items() if at[0] == part and at[1] > after))


def test_a_gap_at_the_end_of_a_partition_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cassandra, "LOG_ROWS", 4)
    tables, seals = MemoryTables(), [NO_SEAL]
    log = CassandraLog(tables, "pairs")  # type: ignore[arg-type]
    for version in range(10):
        text = seal_entry(version, seals[-1], {"n": version})
        tables.rows[version // 4, version] = text
        seals.append(read_seal(text))
    log.write_note(seal_entry(9, seals[-1], {}))
    assert [entry["version"] for entry in log.read_after(0, seals[1])] == list(range(1, 10))
    del tables.rows[0, 3]
    tables.rows[1, 6] = tables.rows[1, 6].replace('"n"', '"m"')
    with pytest.raises(StoreError, match=r"STORE_DAMAGED.*entry 3 .* is gone, and entry 4 is there"):
        list(log.read_after(0, seals[1]))
    with pytest.raises(StoreError, match=r"STORE_DAMAGED.*entry 3 "):
        log.find_newest()
    problems = list(log.find_damage())
    assert any("entries 3 to 3" in one for one in problems)
    assert any("entry 6 " in one for one in problems)
