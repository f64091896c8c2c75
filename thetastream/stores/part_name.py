"""Names of parts: what one attempt of a task has staged, as a file, as rows of a table or as chunks.

    part-<query>-<epoch>-<task>-<number>.<ending>

The name contains the query and the epoch, so that ``sweep`` knows which parts no commit can name any more.
"""

import re
import uuid

from thetastream.stores.staged import Origin

FILE, ROWS, CHUNKS = "parquet", "rows", "chunks"
"""The endings: a file, rows of a table, chunks of a table."""
_NAME = re.compile(rf"part-(.+)-(\d+)-([^-]*)-[0-9a-f]{{12}}\.(?:{FILE}|{ROWS}|{CHUNKS})")


def make_part_name(origin: Origin, ending: str) -> str:
    """Make a name that no other attempt has."""
    return f"part-{origin.query}-{origin.epoch:06}-{origin.task}-{uuid.uuid4().hex[:12]}.{ending}"


def read_part_name(name: str) -> tuple[str, int] | None:
    """Read query and epoch from the name of a part; None if it is not the name of a part.

    >>> read_part_name(make_part_name(Origin("0a-1b", 7, "3"), CHUNKS))
    ('0a-1b', 7)
    >>> read_part_name("part-0a-1b-000007-3-0123456789ab.parquet"), read_part_name("part-0a-1b.rows")
    (('0a-1b', 7), None)
    """
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))
