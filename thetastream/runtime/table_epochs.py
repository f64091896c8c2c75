"""Chooses the version of a table that an epoch of a query reads, and keeps it for an epoch that runs again.

    epochs/<join>/of-<run>    which table the join reads while the query runs once

Two joins of a query that are alike have one name. They share the version that is written down, so they must
read one table.
"""

import contextlib
import time
from dataclasses import dataclass
from hashlib import blake2b

from thetastream.core.addresses import hide_secrets
from thetastream.core.errors import StateError
from thetastream.core.folder import Folder
from thetastream.runtime.table_folder import TableFolder
from thetastream.runtime.table_versions import EpochVersion, EpochVersions, Version
from thetastream.runtime.task_facts import TaskFacts


@dataclass(frozen=True)
class StagedTable:
    """A table that a join reads."""

    version: Version
    """The version when the DataFrame was built."""
    table: str
    """What tells the table from others of the same driver, also if their columns are the same."""
    versions: str | None = None
    """The name under which later versions are staged; None if there are none."""
    is_followed: bool = False
    """Whether the program stages later versions by itself (``every=``)."""
    max_age_s: float | None = None
    """The query ends if a new epoch would read rows that were those of the source so long ago."""
    n_partitions: int = 1
    """Tuples are divided into so many partitions before they are looked up. It is 1 if a host has room for a
    copy of the whole table."""


def choose_version(
    folder: TableFolder, task: TaskFacts, join: str, alias: str, own: StagedTable
) -> EpochVersion:
    """Return the version that the epoch of a task reads.

    It is the version that is written down for the epoch. If there is none, the newest version is chosen
    and written down. Outside of a query, and where Spark does not tell the epoch, it is the version of
    the DataFrame.

    Parameters
    ----------
    folder : TableFolder
    task : TaskFacts
    join : str
        The name of the join in the query.
    alias : str
        The alias of the table.
    own : StagedTable

    Raises
    ------
    StateError
        TABLES_ALIKE; EPOCH_UNKNOWN if the program follows the table and Spark does not tell the epoch;
        TABLE_STALE; or TABLE_MISSING if a run of the newest version is not there any more. No epoch is
        bound to a version that is not there.
    """
    if task.epoch is None:
        if own.is_followed:
            what = f"Spark does not tell the epoch that reads table {alias!r}, which every= follows"
            hint = "leave every= out, or write with another sink than foreachBatch on Spark Connect"
            raise StateError("EPOCH_UNKNOWN", f"{what}: two tasks could read two versions; {hint}")
        _refuse_missing(folder, own.version)
        return EpochVersion(alias, own.version, own.version.staged_s)
    written = folder.open_folder(f"epochs/{task.query}-{join}")
    if task.run is not None:
        _compare_tables(written, task.run, own.table)
    epochs = EpochVersions(written)
    found = epochs.find(task.epoch)
    if found is None:
        chosen = _find_newest(folder, alias, own)
        _refuse_stale(chosen, own)
        _refuse_missing(folder, chosen.version)
        found = epochs.decide(task.epoch, chosen)
    return found


def _find_newest(folder: TableFolder, alias: str, own: StagedTable) -> EpochVersion:
    if own.versions is None:
        return EpochVersion(alias, own.version, own.version.staged_s)
    versions = folder.open_versions(own.versions)
    check = versions.read_check()
    version = versions.read_newest() or own.version
    refused = None if check.refused is None else check.refused.condition
    return EpochVersion(alias, version, max(version.staged_s, check.fresh_s), refused)


def _refuse_missing(folder: TableFolder, version: Version) -> None:
    if not folder.has_runs(version):
        what = f"staged rows of a table are not in {hide_secrets(folder.root)} any more ({version})"
        hint = "make the DataFrame of the join again, which stages the table again"
        raise StateError("TABLE_MISSING", f"{what}; {hint}")


def list_epochs(folder: TableFolder, query: str) -> list[tuple[int, EpochVersion]]:
    """List what the last epochs of a query read, in the order of epochs and aliases."""
    names = [name for name in folder.list_joins() if name.startswith(f"{query}-")]
    joins = [EpochVersions(folder.open_folder(f"epochs/{name}")) for name in names]
    found = [(epoch, join.read(epoch)) for join in joins for epoch in join.list_epochs()]
    return sorted(found, key=lambda one: (one[0], one[1].alias))


def _refuse_stale(chosen: EpochVersion, own: StagedTable) -> None:
    """Refuse a version that was that of the source too long ago.

    Raises
    ------
    StateError
        TABLE_STALE.
    """
    age_s = time.time() - chosen.fresh_s
    if own.max_age_s is None or age_s <= own.max_age_s:
        return
    why = "" if chosen.refused is None else f", and a later one is refused with {chosen.refused}"
    raise StateError(
        "TABLE_STALE",
        f"table {chosen.alias!r} must not be older than max_age ({own.max_age_s:g} s), and {chosen.version}, "
        f"was last compared with its source {age_s:,.0f} s ago{why}; see that the program that follows the "
        "table runs and reaches its source, then start the query again",
    )


def _compare_tables(folder: Folder, run: str, table: str) -> None:
    """Refuse a join of a query that reads another table than an equal join of the query does.

    Both would read the version of one of them.
    """
    name = f"{_OF_RUN}{blake2b(run.encode(), digest_size=8).hexdigest()}"
    if folder.write_new(name, table.encode()):
        for old in folder.list_files():
            if old.startswith(_OF_RUN) and old != name:
                with contextlib.suppress(FileNotFoundError):
                    folder.remove(old)
    elif folder.read(name) != table.encode():
        what = "two joins of this query have the same aliases, columns and condition, but different tables"
        hint = "an epoch that runs again could not tell which version each of them has read"
        raise StateError("TABLES_ALIKE", f"{what}; {hint}: give one of the tables another alias")


_OF_RUN = "of-"
