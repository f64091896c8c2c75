"""``th.CassandraStore``: results in tables of Apache Cassandra, found by the values of their keys.

pairs           chunks of rows; those of one attempt of a task are one partition
pairs_keys      an index: which chunks have a value of a key column; each value is a partition
pairs_commits   the log of commits, ``LOG_ROWS`` versions in a partition
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from thetastream.errors import QueryError
from thetastream.stores.cassandra_log import CassandraLog
from thetastream.stores.cassandra_session import CassandraTables
from thetastream.stores.cassandra_table import CassandraTable
from thetastream.stores.chunk_store import ChunkStore
from thetastream.stores.description import Description

LONGEST_NAME = 48 - len("_commits")
"""The largest number of characters of the name of a store's table. Cassandra allows 48 characters."""
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)


@dataclass(frozen=True)
class CassandraStore(ChunkStore):
    """Results in tables of Apache Cassandra. It needs the package cassandra-driver.

    Rows are kept in chunks, as Arrow wrote them, so columns may have any type. A question by the value of a
    key reads only the chunks that have this value. A question by a range reads all chunks of the tasks whose
    bounds overlap the range.

    Parameters
    ----------
    url : str
        The address at which the driver and all workers connect, as in
        ``"cassandra://user:password@host1,host2:9042/results"``. Its path is a keyspace, which must exist.
        The address is a part of the options of the query.
    table : str
        The name of the table. The store makes this table, and two more whose names begin with it.

    Examples
    --------
    >>> import thetastream as th
    >>> store = th.CassandraStore("cassandra://host/results", "pairs")
    >>> query = th.write(pairs, store, checkpoint="out/checkpoint")  # doctest: +SKIP
    """

    url: str
    table: str

    kind: ClassVar[str] = "cassandra"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.table) or len(self.table) > LONGEST_NAME:
            what = f"table must be a letter and up to {LONGEST_NAME - 1} more letters, digits, underscores"
            raise QueryError("BAD_VALUE", f"{what}, not {self.table!r}")
        CassandraTables.read(self.url, self.table)

    def __repr__(self) -> str:
        """Describe the store without its address, which may hold a password."""
        return f"CassandraStore(..., {self.table!r})"

    @property
    def name(self) -> str:
        return f"table {self.table!r}"

    def describe(self, description: Description) -> None:
        self.log.make()
        super().describe(description)

    @property
    def log(self) -> CassandraLog:
        return CassandraLog(CassandraTables.read(self.url, self.table), self.name)

    @property
    def chunks(self) -> CassandraTable:
        return CassandraTable(CassandraTables.read(self.url, self.table))
