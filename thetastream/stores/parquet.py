"""``th.ParquetStore``: results as Parquet files in a folder, and a log of commits that names them.

folder/part-<query>-<epoch>-<task>-<number>.parquet
folder/_log/<version>.json
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from thetastream.core.folder import Folder
from thetastream.errors import StoreError
from thetastream.stores.base import Store
from thetastream.stores.description import Description
from thetastream.stores.parquet_stage import ParquetStage, read_name
from thetastream.stores.selection import Selection
from thetastream.stores.staged import Origin, Stage, Staged
from thetastream.stores.version_log import VersionLog


@dataclass(frozen=True)
class ParquetStore(Store):
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

    def describe(self, description: Description) -> None:
        if not self._log.append(0, {"description": description.to_json()}):
            self.description.refuse_changes(description, self.path)

    @property
    def description(self) -> Description:
        if self._log.find_newest() < 0:
            raise self._make_absence()
        return Description.from_json(self._log.read(0)["description"])

    def open_stage(self, origin: Origin, description: Description) -> Stage:
        return ParquetStage(Folder(self.path, ""), origin, description)

    def commit(self, query: str, epoch: int, staged: Sequence[Staged]) -> bool:
        log = self._log
        while True:
            newest = log.find_newest()
            epochs = self._read_epochs(newest)
            if epochs.get(query, -1) >= epoch:
                return False
            entry = {
                "query": query,
                "epoch": epoch,
                "staged": [one.to_json() for one in staged],
                "epochs": {**epochs, query: epoch},
            }
            if log.append(newest + 1, entry):
                return True

    def sweep(self) -> int:
        # The epochs are read first. A file of a later epoch may be named while this runs, so it stays.
        epochs = self._read_epochs(self._log.find_newest())
        folder, swept = Folder(self.path, ""), 0
        named = {one.name for one in self._list_staged()}
        for name in folder.list_files():
            origin = read_name(name)
            if origin is not None and name not in named and origin[1] <= epochs.get(origin[0], -1):
                folder.remove(name)
                swept += 1
        return swept

    def read(self, since: Any = None, until: Any = None, key: Mapping[str, Any] | None = None) -> pa.Table:
        import pyarrow.dataset as ds

        description = self.description
        selection = Selection.read(description, since, until, key)
        folder = Folder(self.path, "")
        names = [folder.locate(one.name) for one in self._list_staged() if selection.may_hold(one)]
        if not names:
            return description.schema.empty_table()
        data = ds.dataset(names, schema=description.schema, format="parquet", filesystem=folder.filesystem)
        return data.to_table(filter=selection.filter)

    def files(self, since: Any = None, until: Any = None, key: Mapping[str, Any] | None = None) -> list[str]:
        """List the files of all results, for other programs: ``spark.read.parquet(*store.files())``.

        Parameters
        ----------
        since, until, key
            As in ``read``. Files that have no such row are left out; other rows of the files remain.
        """
        selection = Selection.read(self.description, since, until, key)
        root = self.path.rstrip("/")
        return [f"{root}/{one.name}" for one in self._list_staged() if selection.may_hold(one)]

    def _make_absence(self) -> StoreError:
        return StoreError("NO_STORE", f"{self.path} must hold results of th.write; it has no log of commits")

    @property
    def _log(self) -> VersionLog:
        return VersionLog(self.path)

    def _list_staged(self) -> Iterator[Staged]:
        for entry in self._log.read_from(1):
            yield from map(Staged.from_json, entry["staged"])

    def _read_epochs(self, version: int) -> dict[str, int]:
        """Read the last committed epoch of each query, as of a version."""
        if version < 0:
            raise self._make_absence()
        return {} if version == 0 else dict(self._log.read(version)["epochs"])
