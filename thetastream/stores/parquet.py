"""``th.ParquetStore``: results as Parquet files in a folder, and a log of commits that names them.

folder/part-<query>-<epoch>-<task>-<number>.parquet
folder/_log/<version>.json

Merges small files of a store into large ones, so that a reader opens fewer files.

In the merged file, the rows of each snapshot have their own row groups, so that any snapshot can still be
read. Rows that no snapshot has yet are not merged.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, ClassVar

import pyarrow as pa

from thetastream.core.errors import StoreError
from thetastream.core.folder import Folder, hide_secrets, is_uri, list_variables
from thetastream.results.description import Description
from thetastream.results.history import CommittedRows, History
from thetastream.results.recent import (
    KEY_VALUES,
    RECENT,
    Numbers,
    keep_with_values,
    list_numbers,
    split_recent,
)
from thetastream.results.sealed_file import SealedFile, find_damage
from thetastream.results.selection import Selection
from thetastream.results.staged import BoundsFinder, Origin, Stage, Staged, find_column, sort_by_keys
from thetastream.results.store import TARGET, LoggedStore, select
from thetastream.results.upkeep import Sweeping
from thetastream.results.version_log import VersionLog
from thetastream.stores.parquet_files import ParquetStage, open_files, open_writer, read_file, write_groups


@dataclass(frozen=True)
class ParquetStore(LoggedStore):
    """Results as Parquet files in a folder.

    Parameters
    ----------
    path : str
        The folder, as a path or URI, which driver and workers must reach. Several queries may write to
        one store. A file system without a write that fails if the file exists is refused.

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
        object.__setattr__(self, "path", path if is_uri(path) else os.path.abspath(path))

    def __repr__(self) -> str:
        """Describe the store without the user and the password of its URI."""
        return f"{type(self).__name__}(path={self.name!r})"

    @property
    def name(self) -> str:
        return hide_secrets(self.path)

    @property
    def is_shared(self) -> bool:
        return is_uri(self.path)

    def answers(self) -> bool:
        try:
            return self.log.has(0)
        except StoreError:
            return False

    @property
    def variables(self) -> tuple[str, ...]:
        return list_variables(self.path)

    @property
    def log(self) -> VersionLog:
        return VersionLog(self.path)

    def open_stage(self, origin: Origin, description: Description) -> Stage:
        return ParquetStage(Folder(self.path, ""), origin, description)

    def sweep(self, grace_s: float = 3600) -> int:
        folder, sweeping, swept = Folder(self.path, ""), Sweeping(self, grace_s), 0
        for name, (changed_ns, _) in folder.list_files().items():
            merged_s = changed_ns / 1e9 if name.startswith(PREFIX) else None
            if sweeping.is_removable(name, merged_s):
                with suppress(FileNotFoundError):  # Another process has removed it.
                    folder.remove(name)
                    swept += 1
        return swept

    def compact(self, target: int = TARGET) -> int:
        folder, description, merged = Folder(self.path, ""), self.description, 0
        for held in plan_merges(self.read_history().held, target):
            added, places = merge(folder, held, description), {one.staged.place for one in held}
            while True:
                newest = self.log.find_newest()
                present = {one.staged.place for one in self.read_history().held}
                if not places <= present:
                    # Another process has merged or dropped some of them. ``sweep`` removes the new file.
                    break
                if self.append_rewrite(newest, held, added):
                    merged += len(held)
                    break
        if merged:
            self._write_state()
        return merged

    def flush(self) -> None:
        Folder(self.path, "").flush()

    def _write_state(self) -> None:
        """Write the state that follows from all versions of the log, so that readers need not read all of
        them."""
        version, seal, state = self.log.read_state()
        history = History() if state is None else History.from_json(state)
        for entry in self.log.read_after(version, seal):
            history.add(entry)
            version, seal = entry["version"], entry["seal"]
        present = Folder(self.path, "").list_files()
        history.dropped = {name: at for name, at in history.dropped.items() if name in present}
        self.log.write_state(version, seal, history.as_json())

    def find_damage(self, staged: Sequence[Staged], description: Description) -> Iterator[str]:
        """Yield a sentence for each file that is damaged or gone."""
        folder = Folder(self.path, "")
        for one in {one.name: one for one in staged}.values():
            yield from find_damage(folder, one)

    def files(self, since: Any = None, until: Any = None, key: Mapping[str, Any] | None = None) -> list[str]:
        """List the files of all results, for other programs: ``spark.read.parquet(*store.files())``.

        The URI of a file has no user, password or options. The other program brings its own access.

        Parameters
        ----------
        since, until, key
            As in ``read``. Files without such rows are left out. The listed files may also have other rows.
        """
        selection = Selection.read(self.description, since, until, key)
        root = self.name.rstrip("/")
        names = dict.fromkeys(one.name for one in select(self.read_history(), None, selection))
        return [f"{root}/{name}" for name in names]

    def open_staged(self, staged: Iterable[Staged], selection: Selection) -> Any:
        import pyarrow.dataset as ds

        folder, schema = Folder(self.path, ""), self.description.schema
        found = keep_with_values(
            list(staged), selection, lambda one, column: self._read_numbers(folder, one, column)
        )
        recent, older = split_recent(found)
        rows = pa.concat_tables([schema.empty_table(), *(self._read_recent(folder, one) for one in recent)])
        if not older:
            return rows if selection.filter is None else rows.filter(selection.filter)
        data = ds.dataset([ds.dataset(rows), open_files(folder, older, schema)])
        return data if selection.filter is None else data.filter(selection.filter)

    def _read_numbers(self, folder: Folder, staged: Staged, column: str) -> Numbers:
        """Read the distinct values of a key column in staged rows, or take them from memory."""

        def read() -> Numbers:
            return list_numbers(find_column(read_file(folder, staged, [column]), column))

        return KEY_VALUES.get((self.path, staged.place, column), read)

    def _read_recent(self, folder: Folder, staged: Staged) -> pa.Table:
        """Read staged rows, or take them from memory."""
        return RECENT.get((self.path, staged.place), lambda: read_file(folder, staged))


PREFIX = "merged-"
"""The beginning of the names of merged files."""


def plan_merges(held: Sequence[CommittedRows], target: int) -> Iterator[list[CommittedRows]]:
    """Yield lists of consecutive small files, which have ``target`` bytes together.

    Each list has at least two files. Files of half the target and more are not merged. A list before such a
    file, and the last list, may have fewer bytes.
    """
    waiting: list[CommittedRows] = []
    for one in held:
        is_small = one.snapshot is not None and one.staged.groups is None and 2 * one.staged.nbytes < target
        if is_small:
            waiting.append(one)
        if not is_small or sum(each.staged.nbytes for each in waiting) >= target:
            if len(waiting) > 1:
                yield waiting
            waiting = []
    if len(waiting) > 1:
        yield waiting


def merge(folder: Folder, held: Sequence[CommittedRows], description: Description) -> list[CommittedRows]:
    """Write the rows of several files into one; return its rows, snapshot by snapshot."""
    name, merged, group = f"{PREFIX}{uuid.uuid4().hex}.parquet", [], 0
    by_snapshot = sorted(held, key=lambda one: (one.snapshot or 0, one.query))
    file, writer = SealedFile(folder, name), None
    for (snapshot, query), parts in groupby(by_snapshot, key=lambda one: (one.snapshot, one.query)):
        table = pa.concat_tables(read_file(folder, one.staged) for one in parts)
        if description.keys:
            table = sort_by_keys(table, description.keys)
        writer = writer or open_writer(file, description, table)
        bounds, before, first = BoundsFinder(description.bounded), file.tell(), group
        group += write_groups(writer, table)
        bounds.add(table)
        place = first, group
        staged = Staged(name, len(table), file.tell() - before, bounds.bounds, place)
        merged.append(CommittedRows(staged, query, snapshot))
    file.begin_tail()
    if writer is not None:
        writer.close()
    seal = asdict(file.end())
    return [replace(one, staged=replace(one.staged, seal=seal)) for one in merged]
