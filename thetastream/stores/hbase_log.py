"""The log of a store in Apache HBase. One step checks that a version does not exist, and writes it."""

import json
from collections.abc import Iterator
from typing import Any

from thetastream.stores.hbase_rows import HBaseRows
from thetastream.stores.table_log import TableLog


class HBaseLog(TableLog):
    """Versions as rows ``"l" version``."""

    def __init__(self, rows: HBaseRows, name: str) -> None:
        super().__init__(name)
        self._rows = rows

    def find_newest(self) -> int:
        for key, _ in self._rows.scan(b"l" + b"\xff" * 9, b"l", batch=1, limit=1, is_reverse=True):
            return int.from_bytes(key[1:])
        return -1

    def find(self, version: int) -> dict[str, Any] | None:
        entry = self._rows.find(_locate(version))
        return None if entry is None else json.loads(entry)

    def read_after(self, version: int) -> Iterator[dict[str, Any]]:
        for _, entry in self._rows.scan(_locate(version + 1), b"m"):
            yield json.loads(entry)

    def append(self, version: int, entry: dict[str, Any]) -> bool:
        text = json.dumps({"version": version, **entry})
        return self._rows.write_new(_locate(version), text.encode())


def _locate(version: int) -> bytes:
    return b"l" + version.to_bytes(8)
