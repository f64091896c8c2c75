"""Checkpoints of queries that never ran, with the files that Spark would have written."""

import json
import zlib
from pathlib import Path
from typing import Any


def write_checkpoint(folder: Path, begun: int, committed: int, *offsets: dict[str, Any]) -> Path:
    """Write a checkpoint whose last epoch has these offsets of sources."""
    for name in ("offsets", "commits", "state/0/0"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"eb16ab27"}')
    log = {"batchWatermarkMs": 0, "batchTimestampMs": 2_000, "conf": {"spark.sql.shuffle.partitions": "3"}}
    for epoch in range(begun + 1):
        lines = [json.dumps(log), *map(json.dumps, offsets), "-"]
        (folder / "offsets" / str(epoch)).write_text("\n".join(["v1", *lines]))
        write_checksum(folder / "offsets" / str(epoch))
    for epoch in range(committed + 1):
        (folder / "commits" / str(epoch)).write_text(f'v2\n{{"nextBatchWatermarkMs":{epoch * 1000}}}')
    (folder / "state/0/0/1.changelog").write_bytes(bytes(2_000_000))
    return folder


def write_checksum(path: Path) -> None:
    """Write the file in which Hadoop keeps the checksums of a file of at most 512 bytes."""
    checksum = zlib.crc32(path.read_bytes()).to_bytes(4, "big")
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4, "big") + checksum)
