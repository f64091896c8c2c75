"""A condition that changes: another query begins with the stored tuples of a query that was stopped.

    checkpoint, last epoch n  ->  target: the same state and offsets, with another id, and FORK in the offset

A fork is a copy of a checkpoint whose query is another one. The source that keeps the identity of the query
compares both when the new query starts, and tells the units in the first epoch whose tuples they have
(``thetastream.spark.sources.identity``). So nothing is read again, and the old query may go on by itself.
"""

import json
import uuid
from pathlib import Path

from pyarrow import fs

from thetastream.core.addresses import hide_secrets
from thetastream.core.arguments import read_path
from thetastream.core.errors import QueryError, StateError
from thetastream.core.folder import Folder, split_path
from thetastream.results.writer import FORKED_AT
from thetastream.runtime.checkpoint_files import find_epochs, read_offsets, remove_checksum, update_paths
from thetastream.runtime.observe.running import is_running
from thetastream.spark.sources.identity import FORKED, IS_BEGUN

_LEFT_OUT = ("metadata", ".metadata.crc", ".thetastream.lock", FORKED_AT)
"""Files at the top of a checkpoint that belong to its own query."""


def fork(checkpoint: str | Path, target: str | Path, epoch: int | None = None) -> int:
    """Make a checkpoint for a query with another condition, which begins with the stored tuples of this one.

    Start the new query with the checkpoint ``target``. It continues the streams after an epoch of the old
    query. Its results are the pairs under the new condition that have a tuple which is read from then on. The
    other tuple may be a stored one.

    If the new query writes to the store of the old one, it takes its place there with its first epoch:
    readers and subscribers get the pairs under the new condition from then on, and the old query is refused.
    If it writes elsewhere, the old query is not changed, and may go on.

    The new query is an inner join of the same two streams, with the same columns, the same model and units,
    and a window that is not wider. When it starts, it ends with FORK if stored tuples lack what the new
    condition needs: a value that is computed from columns, or rows that the old condition has filtered.

    Parameters
    ----------
    checkpoint : str or Path
        The checkpoint of the old query, which is stopped, as a path or URI.
    target : str or Path
        The checkpoint of the new query. The folder must be empty or not exist.
    epoch : int, optional
        The committed epoch of the old query after which the new one begins. By default, it is the last one.
        After an earlier one, the new query must write elsewhere.

    Returns
    -------
    int
        The epoch of the old query after which the new one begins.

    Raises
    ------
    QueryError
        FORK if ``target`` is not empty, if the query is no single join of two streams, if another operator
        keeps state, if units send messages or may change (``max_units``), or if ``epoch`` is not one that the
        checkpoint still has.
    StateError
        CHECKPOINT_IN_USE if the query runs on this machine. EPOCH_UNFINISHED if its last epoch is not
        committed. CHECKPOINT_VERSION if Spark has written the checkpoint in another form.

    Examples
    --------
    >>> import thetastream as th
    >>> th.fork("out/checkpoint", "out/checkpoint-2")  # doctest: +SKIP
    41
    >>> pairs = th.join({"a": a, "b": b}, on="abs(a.x - b.x) <= 3", within="1h")  # doctest: +SKIP
    >>> store = th.ParquetStore("out/pairs")
    >>> query = th.write(pairs, store, checkpoint="out/checkpoint-2")  # doctest: +SKIP
    """
    checkpoint, target = read_path(checkpoint, "checkpoint"), read_path(target, "target")
    where, folder = hide_secrets(checkpoint), Folder(*split_path(checkpoint))
    into = Folder(*split_path(target))
    if into.list_files():
        what = f"the checkpoint of the new query, {hide_secrets(target)}, must be an empty folder"
        raise QueryError("FORK", f"{what}; name another one")
    # 1. Check the old checkpoint.
    epoch = _find_epoch(folder, where, epoch)
    lines = read_offsets(folder, epoch, where)
    joins = [number for number, line in enumerate(lines) if _is_join(line)]
    n_operators = sum(name.isdigit() for name in folder.list_files("state"))
    if len(joins) != 1 or n_operators != 1:
        what = f"{where} must be the checkpoint of one join that nothing with state follows or precedes"
        raise QueryError("FORK", f"{what}; it has {len(joins)} joins and {n_operators} operators with state")
    offset = json.loads(lines[joins[0]])
    for name, what in (("mailbox", "send messages"), ("control", "may change (max_units)")):
        if name in offset:
            raise QueryError("FORK", f"the join of {where} cannot be forked, because its units {what}")
    # 2. Copy it without later epochs, and say whose tuples it has. The new query is known by another id.
    _copy(folder, into)
    for log in ("offsets", "commits"):
        for later in (name for name in into.list_files(log) if name.isdigit() and int(name) > epoch):
            remove_checksum(into, f"{log}/{later}")
            into.remove(f"{log}/{later}")
    lines[joins[0]] = json.dumps({**offset, FORKED: {"of": _read_id(folder), IS_BEGUN: False}})
    remove_checksum(into, f"offsets/{epoch}")
    into.write(f"offsets/{epoch}", "\n".join(lines).encode())
    update_paths(target)
    into.write(FORKED_AT, json.dumps({"query": _read_id(folder), "epoch": epoch}).encode())
    into.write("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
    return epoch


def _find_epoch(folder: Folder, where: str, epoch: int | None) -> int:
    """Find the epoch of a stopped query after which a fork begins, which must be committed."""
    begun, committed = find_epochs(folder)
    if epoch is not None:
        logs = (folder.list_files("offsets"), folder.list_files("commits"))
        kept = sorted(int(name) for name in set(logs[0]) & set(logs[1]) if name.isdigit())
        if epoch not in kept:
            has = f"it has those from {kept[0]} to {kept[-1]}" if kept else "it has none"
            what = f"epoch must be a committed epoch that {where} still has, not {epoch!r}"
            raise QueryError("FORK", f"{what}; {has}")
    elif begun < 0 or begun != committed:
        found = f"epoch {begun} was interrupted" if begun >= 0 else "it has none"
        hint = "start the old query once with trigger(availableNow=True) and let it end"
        raise StateError("EPOCH_UNFINISHED", f"{where} must have a committed last epoch; {found}; {hint}")
    if is_running(_read_id(folder)):
        what = f"{where} belongs to query {_read_id(folder)}, which runs on this machine"
        raise StateError("CHECKPOINT_IN_USE", f"{what}; stop it first")
    return begun if epoch is None else epoch


def _read_id(folder: Folder) -> str:
    return str(json.loads(folder.read("metadata"))["id"])


def _is_join(line: str) -> bool:
    return line.startswith("{") and "query" in json.loads(line)


def _copy(source: Folder, target: Folder) -> None:
    """Copy a checkpoint without the files of its query. Without ``metadata``, the copy is no checkpoint."""
    target.make()
    for name in source.list_files():
        if name in _LEFT_OUT:
            continue
        here, there = source.locate(name), target.locate(name)
        if source.filesystem.get_file_info(here).type == fs.FileType.Directory:
            target.filesystem.create_dir(there)
        fs.copy_files(
            here, there, source_filesystem=source.filesystem, destination_filesystem=target.filesystem
        )
