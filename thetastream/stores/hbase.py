"""``th.HBaseStore``: results in a table of Apache HBase, found by values and ranges of their keys."""

import re
from dataclasses import dataclass
from typing import ClassVar

from thetastream.errors import QueryError
from thetastream.stores.chunk_store import ChunkStore
from thetastream.stores.hbase_log import HBaseLog
from thetastream.stores.hbase_rows import HBaseRows
from thetastream.stores.hbase_table import HBaseTable

_NAME = re.compile(r"(\w+:)?\w[\w.-]*", re.ASCII)


@dataclass(frozen=True)
class HBaseStore(ChunkStore):
    """Results in a table of Apache HBase, over its Thrift server. It needs the package happybase.

    Rows are kept in chunks, as Arrow wrote them, so columns may have any type. A question by a value or a
    range of a key reads only the chunks that have such keys, unless it costs less to read all chunks.

    Parameters
    ----------
    address : str
        Host and port of the Thrift server, as in ``"host:9090"``. The driver and all workers connect to it.
    table : str
        The name of the table, with its namespace if this is not the default one. The store makes the table.

    Examples
    --------
    >>> import thetastream as th
    >>> store = th.HBaseStore("host:9090", "pairs")
    >>> query = th.write(pairs, store, checkpoint="out/checkpoint")  # doctest: +SKIP
    """

    address: str
    table: str

    kind: ClassVar[str] = "hbase"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.table):
            what = "table must have letters, digits, underscores, points and hyphens"
            raise QueryError("BAD_VALUE", f"{what}, not {self.table!r}")
        HBaseRows.read_address(self.address)

    @property
    def name(self) -> str:
        return f"table {self.table!r}"

    @property
    def log(self) -> HBaseLog:
        return HBaseLog(HBaseRows(self.address, self.table), self.name)

    @property
    def chunks(self) -> HBaseTable:
        return HBaseTable(HBaseRows(self.address, self.table))
