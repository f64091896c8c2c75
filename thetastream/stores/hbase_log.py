"""The log of a store in Apache HBase. One step checks that a version does not exist, and writes it."""

from collections.abc import Iterator, Mapping
from typing import Any

from thetastream.stores.hbase_rows import HBaseRows
from thetastream.stores.log import Log


class HBaseLog(Log):
    """Versions as rows ``"l" version``."""

    def __init__(self, rows: HBaseRows, name: str) -> None:
        super().__init__(name)
        self._rows = rows

    def find_newest(self) -> int:
        for key, _ in self._rows.scan(b"l" + b"\xff" * 9, b"l", batch=1, limit=1, is_reverse=True):
            return int.from_bytes(key[1:])
        return -1

    def find_text(self, version: int) -> bytes | None:
        return self._rows.find(_locate(version))

    def list_texts(self, after: int) -> Iterator[tuple[int, object]]:
        for key, entry in self._rows.scan(_locate(after + 1), b"m"):
            yield int.from_bytes(key[1:]), entry

    def write(self, version: int, text: str, entry: Mapping[str, Any]) -> bool:
        return self._rows.write_new(_locate(version), text.encode())


def _locate(version: int) -> bytes:
    return b"l" + version.to_bytes(8)
