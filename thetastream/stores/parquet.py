"""``th.ParquetStore``: results as Parquet files in a folder, and a log of commits that names them.

    folder/part-<query>-<epoch>-<task>-<number>.parquet    what one attempt of a task has staged
    folder/merged-<number>.parquet    small files that were merged, so that a reader opens fewer files
    folder/_log/<number>.json    the log

In a merged file, the rows of each snapshot have their own row groups, so that any snapshot can still be read.
Rows that no snapshot has yet are not merged.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from thetastream.core.addresses import hide_secrets
from thetastream.core.arguments import read_path, refuse_non_number
from thetastream.core.folder import Folder, is_local_path, is_uri, list_variables
from thetastream.results.backend import reach
from thetastream.results.description import Description
from thetastream.results.history import CommittedRows, History
from thetastream.results.log import seal_entry
from thetastream.results.recent import (
    KEY_VALUES,
    RECENT,
    Numbers,
    keep_with_values,
    list_numbers,
    split_recent,
)
from thetastream.results.selection import Selection
from thetastream.results.staged import BoundsFinder, Origin, Stage, Staged, find_column, sort_by_keys
from thetastream.results.store import TARGET, Store, select
from thetastream.results.version_log import PLACE, VersionLog
from thetastream.stores.parquet_files import (
    ParquetStage,
    SealedFile,
    find_damage,
    open_files,
    open_writer,
    read_file,
    write_groups,
)

PREFIX = "merged-"
"""The beginning of the names of merged files."""
MOST_PIECES = 1000
"""The number of snapshots after which a merged file ends. Each has row groups of its own in the footer."""


class ParquetBackend(VersionLog):
    """Entries and parts as files of a folder, a path or URI."""

    @cached_property
    def folder(self) -> Folder:
        """The folder of the parts."""
        return Folder(self._root, "")

    def append(self, n: int, text: str, entry: Mapping[str, Any]) -> bool:
        with reach(self._where):
            self.folder.flush()
        return super().append(n, text, entry)

    def stage(self, origin: Origin, description: Description) -> Stage:
        return ParquetStage(self.folder, origin, description)

    def open(self, staged: Sequence[Staged], selection: Selection, description: Description) -> Any:
        import pyarrow.dataset as ds

        recent, older = split_recent(keep_with_values(staged, selection, self._read_numbers))
        schema = description.schema
        rows = pa.concat_tables([schema.empty_table(), *(self._read_recent(one) for one in recent)])
        if not older:
            return rows if selection.filter is None else rows.filter(selection.filter)
        data = ds.dataset([ds.dataset(rows), open_files(self.folder, older, schema)])
        return data if selection.filter is None else data.filter(selection.filter)

    def _read_numbers(self, staged: Staged, column: str) -> Numbers:
        """Read the distinct values of a key column in staged rows, or take them from memory."""

        def read() -> Numbers:
            return list_numbers(find_column(read_file(self.folder, staged, [column]), column))

        return KEY_VALUES.get((self._root, staged.place, column), read)

    def _read_recent(self, staged: Staged) -> pa.Table:
        """Read staged rows, or take them from memory."""
        return RECENT.get((self._root, staged.place), lambda: read_file(self.folder, staged))

    def names(self) -> Iterator[tuple[str, float | None]]:
        for name, (changed_ns, _) in self.folder.list_files().items():
            yield name, changed_ns / 1e9 if name.startswith(PREFIX) else None

    def remove(self, names: Iterable[str], description: Description) -> None:
        for name in names:
            with suppress(FileNotFoundError):  # Another process has removed it.
                self.folder.remove(name)

    def check(self, staged: Sequence[Staged], description: Description) -> Iterator[str]:
        for one in {one.name: one for one in staged}.values():
            yield from find_damage(self.folder, one)


@dataclass(frozen=True)
class ParquetStore(Store):
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

    if TYPE_CHECKING:
        # The field is a text, but a path of ``pathlib`` is accepted too.
        def __init__(self, path: str | os.PathLike[str]) -> None: ...

    kind: ClassVar[str] = "parquet"
    for_users: ClassVar[tuple[str, ...]] = (*Store.for_users, "files")
    place: ClassVar[str] = PLACE

    def __post_init__(self) -> None:
        path = read_path(self.path, "path")
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

    @property
    def variables(self) -> tuple[str, ...]:
        return list_variables(self.path)

    @property
    def local_folder(self) -> str | None:
        return self.backend.folder.locate("") if is_local_path(self.path) else None

    @property
    def backend(self) -> ParquetBackend:
        return ParquetBackend(self.path)

    def compact(self, target: int = TARGET) -> int:
        refuse_non_number(target, "target")
        merged = 0
        for held in plan_merges(self.read_history().held, target):
            if self._rewrite([held]):
                merged += len({one.staged.name for one in held})
        if merged:
            self._write_state()
        return merged

    def cut(self, first: int) -> int:
        n_cut = 0
        for file in list_parts(self.read_history().held):
            old, kept = list[CommittedRows](), list[CommittedRows]()
            for one in file:
                (old if one.snapshot is not None and one.snapshot < first else kept).append(one)
            if old and kept:
                n_cut += self._rewrite([old, kept])
        return n_cut

    def _rewrite(self, files: Sequence[Sequence[CommittedRows]]) -> bool:
        """Write committed rows into new files, one for each list, which then stand for the present files.

        Return False if another process has merged or dropped some of the rows. ``sweep`` removes the new
        files then.
        """
        folder, description = self.backend.folder, self.description
        held = [one for file in files for one in file]
        added = [one for file in files for one in merge(folder, file, description)]
        places = {one.staged.place for one in held}
        while True:
            newest = self.log.find_newest()
            if not places <= {one.staged.place for one in self.read_history().held}:
                return False
            if self.append_rewrite(newest, held, added):
                return True

    def _write_state(self) -> None:
        """Write the state that follows from all entries of the log, so that readers need not read all of
        them."""
        log, backend = self.log, self.backend
        version, seal, state = log.read_state()
        history = History() if state is None else History.from_json(state)
        for entry in log.read_after(version, seal):
            history.add(entry)
            version, seal = entry["version"], entry["seal"]
        present = {name for name, _ in backend.names()}
        history.dropped = {name: at for name, at in history.dropped.items() if name in present}
        backend.write_state(version, seal_entry(version, seal, {"history": history.as_json()}))

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


def list_parts(held: Iterable[CommittedRows]) -> Iterator[list[CommittedRows]]:
    """Yield the rows of each file. Those of a merged file are consecutive."""
    for _, rows in groupby(held, key=lambda one: one.staged.name):
        yield list(rows)


def plan_merges(held: Sequence[CommittedRows], target: int) -> Iterator[list[CommittedRows]]:
    """Yield the rows of consecutive small files, which have ``target`` bytes together.

    Each list has the rows of at least two files. Files of half the target and more are not merged. A list
    before such a file, and the last list, may have fewer bytes.

    A merged file is merged again when the newer files behind it have as many bytes as it has. So a store that
    is merged often has few small files, and a row is written again about log2(target / bytes of its first
    file) times at most.
    """
    run: list[list[CommittedRows]] = []
    for file in list_parts(held):
        is_whole = all(one.snapshot is not None for one in file)
        if is_whole and 2 * count_bytes(file) < target and 2 * len(file) < MOST_PIECES:
            run.append(file)
        else:
            yield from _plan_run(run, target)
            run = []
    yield from _plan_run(run, target)


def _plan_run(run: Sequence[list[CommittedRows]], target: int) -> Iterator[list[CommittedRows]]:
    """Yield what to merge of consecutive small files."""
    first, behind = len(run), 0
    for n, file in reversed(list(enumerate(run))):
        if file[0].staged.groups is not None and count_bytes(file) > behind:
            break
        first, behind = n, behind + count_bytes(file)
    waiting, n_files, nbytes = list[CommittedRows](), 0, 0
    for n, file in enumerate(run[first:], first):
        waiting += file
        n_files, nbytes = n_files + 1, nbytes + count_bytes(file)
        is_full = nbytes >= target or len(waiting) >= MOST_PIECES
        if (is_full or n == len(run) - 1) and n_files > 1:
            yield waiting
        if is_full:
            waiting, n_files, nbytes = [], 0, 0


def count_bytes(held: Iterable[CommittedRows]) -> int:
    """Count the bytes of rows."""
    return sum(one.staged.nbytes for one in held)


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
