"""``th.ParquetStore``: results as Parquet files in a folder, and a log of commits that names them.

folder/part-<query>-<epoch>-<task>-<number>.parquet
folder/_log/<version>.json
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from thetastream.core.folder import Folder
from thetastream.stores.base import Asked
from thetastream.stores.description import Description
from thetastream.stores.logged import LoggedStore
from thetastream.stores.parquet_stage import ParquetStage, read_name
from thetastream.stores.recent import RECENT, split_recent
from thetastream.stores.selection import Selection
from thetastream.stores.staged import Origin, Stage, Staged
from thetastream.stores.version_log import VersionLog


@dataclass(frozen=True)
class ParquetStore(LoggedStore):
    """Results as Parquet files in a folder.

    Parameters
    ----------
    path : str
        The folder, as a path or URI, which driver and workers must reach. On local file systems, several
        queries may write to one store. Elsewhere a store has one writing query at a time, because Arrow
        cannot write a file on the condition that it does not exist.

    Examples
    --------
    >>> import thetastream as th
    >>> store = th.ParquetStore("out/pairs")
    >>> query = th.write(pairs, store, checkpoint="out/checkpoint")  # doctest: +SKIP
    >>> store.read(since="2026-01-05 09:30").num_rows  # doctest: +SKIP
    """

    path: str

    kind: ClassVar[str] = "parquet"

    def __post_init__(self) -> None:
        path = str(self.path)
        object.__setattr__(self, "path", path if ":" in path else os.path.abspath(path))

    @property
    def name(self) -> str:
        return self.path

    @property
    def log(self) -> VersionLog:
        return VersionLog(self.path)

    def open_stage(self, origin: Origin, description: Description) -> Stage:
        return ParquetStage(Folder(self.path, ""), origin, description)

    def sweep(self) -> int:
        # The epochs are read first. A file of a later epoch may be named while this runs, so it stays.
        epochs = self.list_last_epochs()
        folder, swept = Folder(self.path, ""), 0
        named = {one.name for one in self.read_history().list_staged()}
        for name in folder.list_files():
            origin = read_name(name)
            if origin is not None and name not in named and origin[1] <= epochs.get(origin[0], -1):
                folder.remove(name)
                swept += 1
        return swept

    def files(
        self,
        snapshot: Asked = None,
        since: Any = None,
        until: Any = None,
        key: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """List the files of results, for other programs: ``spark.read.parquet(*store.files())``.

        Parameters
        ----------
        snapshot, since, until, key
            As in ``read``. Files that have no such row are left out; other rows of the files remain.
        """
        selection = Selection.read(self.description, since, until, key)
        root = self.path.rstrip("/")
        return [f"{root}/{one.name}" for one in self.select(snapshot, selection)]

    def open_staged(self, staged: Iterable[Staged], selection: Selection) -> Any:
        import pyarrow.dataset as ds

        folder, schema = Folder(self.path, ""), self.description.schema
        recent, older = split_recent(list(staged))
        tables = [self._read_recent(folder, one.name) for one in recent]
        parts = [ds.dataset(pa.concat_tables(tables))] if tables else []
        if older or not tables:
            names = [folder.locate(one.name) for one in older]
            parts.append(ds.dataset(names, schema=schema, format="parquet", filesystem=folder.filesystem))
        data = parts[0] if len(parts) == 1 else ds.dataset(parts)
        return data if selection.filter is None else data.filter(selection.filter)

    def _read_recent(self, folder: Folder, name: str) -> pa.Table:
        """Read a file, or take it from memory."""
        import pyarrow.parquet as pq

        def read() -> pa.Table:
            return pq.read_table(folder.locate(name), filesystem=folder.filesystem, partitioning=None)

        return RECENT.get(f"{self.path}/{name}", read)
