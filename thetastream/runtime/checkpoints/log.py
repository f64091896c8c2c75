"""Reads the logs of epochs that Spark keeps in a checkpoint.

offsets/<epoch>   "v1", a line of metadata, and then one line per source
commits/<epoch>   "v1" or "v2", and a line with the watermark of the next epoch
"""

import json
from collections.abc import Iterable
from typing import Any

from thetastream.core.folder import Folder


def find_last_epoch(names: Iterable[str]) -> int:
    """Find the last epoch among the names of the files of a log; -1 if there is none.

    >>> find_last_epoch(["0", "10", "9", ".9.crc"])
    10
    """
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def read_epoch(folder: Folder, log: str, epoch: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read what a log says about an epoch: the metadata, and the other lines that are JSON objects."""
    lines = folder.read(f"{log}/{epoch}").decode().splitlines()
    found = [json.loads(line) for line in lines[1:] if line.startswith("{")]
    return (found[0], found[1:]) if found else ({}, [])
