"""The writer of an epoch: which checkpoint its query continues from, which input the epoch reads, and whether
it may be committed.

    offsets/<epoch>            "v1", a line of metadata, and then one line per source
    sources/<source>/<number>  the files that Spark's source of files has read

Spark writes the offsets of an epoch into its checkpoint before the epoch runs, so an epoch that runs again
has the same offsets. An epoch of another copy of the checkpoint has the same number and other offsets.

the query has the last epoch n in the store, and commits epoch m:

m = n        the same input: nothing is to do, because Spark runs an epoch again after a crash
             other input: the checkpoint is a copy that lacks epoch n, so the epoch has other rows
m < n        the checkpoint is older than the store
m = n + 1    the next epoch
m > n + 1    the store is older than the checkpoint, unless the epochs between them read no input
             Before the query starts, m is the last epoch that Spark has committed
no epoch n   the query is new. m must be 0, and the store must have no results of other queries. If the query
             is a fork, m is the epoch after the last one of the old query. In the store of the old query it
             takes its place: results go on under the new condition, and the old query may add no more
"""

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa

from thetastream.core.addresses import hide_secrets
from thetastream.core.errors import StoreError
from thetastream.core.folder import Folder, split_path
from thetastream.results.ledger import CommittedEpoch, Ledger

PARTITIONS = "spark.sql.shuffle.partitions"
FORKED_AT = "thetastream-fork.json"
"""The file in the checkpoint of a fork that names the query from which it has its state."""
BACKUP = "Restore checkpoint and store from one backup, or begin with a new checkpoint and a new store"


class Ancestor(NamedTuple):
    """The query from which a fork has its state, as the checkpoint of the fork names it."""

    query: str
    """The identifier of the old query."""
    epoch: int
    """The epoch of the old query after which the fork begins."""


@dataclass(frozen=True)
class Writer:
    """What a store needs to know of the query that commits an epoch.

    Parameters
    ----------
    checkpoint : str, optional
        The checkpoint of the query, as a path or URI. None if it is not known.
    is_beside_others : bool
        Whether the query may add to the results of other queries.
    """

    checkpoint: str | None = None
    is_beside_others: bool = False

    @property
    def place(self) -> str | None:
        """The checkpoint without user, password and options, as messages name it."""
        return None if self.checkpoint is None else hide_secrets(self.checkpoint)

    def read_query(self) -> str | None:
        """Read the identifier of the query; None if the checkpoint is new or cannot be read."""
        try:
            return str(json.loads(self._folder.read("metadata"))["id"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
            return None

    def list_committed(self) -> list[int]:
        """List the epochs that Spark has committed, oldest first; none if the checkpoint cannot be read.

        Spark keeps the last ones only.
        """
        try:
            names = self._folder.list_files("commits")
        except (OSError, pa.ArrowException):
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def compute_digest(self, epoch: int) -> str | None:
        """Compute a digest of the input of an epoch; None if the checkpoint cannot be read.

        It contains the offsets and the watermark. It does not contain the time at which the epoch began, and
        no settings.
        """
        found = self._read_offsets(epoch)
        if found is None:
            return None
        metadata, sources = found
        read = [self._list_files(number, line) for number, line in enumerate(sources)]
        text = json.dumps([metadata.get("batchWatermarkMs"), sources, read])
        return sha256(text.encode()).hexdigest()[:32]

    def reads_no_input(self, epoch: int) -> bool:
        """Whether an epoch only gave the state another number of partitions, so that it reached no sink."""
        found, before = self._read_offsets(epoch), self._read_offsets(epoch - 1)
        if found is None or before is None:
            return False
        n_partitions = (one[0].get("conf", {}).get(PARTITIONS) for one in (found, before))
        return found[1] == before[1] and len(set(n_partitions)) == 2

    @cached_property
    def ancestor(self) -> Ancestor | None:
        """The query from which this one has its state; None if it is no fork."""
        try:
            found = json.loads(self._folder.read(FORKED_AT))
            return Ancestor(str(found["query"]), int(found["epoch"]))
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            return None

    @cached_property
    def _folder(self) -> Folder:
        if self.checkpoint is None:
            raise OSError("the checkpoint is not known")
        return Folder(*split_path(self.checkpoint))

    def _read_offsets(self, epoch: int) -> tuple[dict[str, Any], list[str]] | None:
        """Read the metadata of an epoch, and the line of each source."""
        try:
            lines = self._folder.read(f"offsets/{epoch}").decode().splitlines()
            metadata = json.loads(lines[1])
        except (OSError, ValueError, IndexError, pa.ArrowException):
            return None
        return (metadata, lines[2:]) if isinstance(metadata, dict) else None

    def _list_files(self, source: int, line: str) -> list[str]:
        """List what the source of files has read last. The offset of this source is only a number."""
        try:
            number = json.loads(line)["logOffset"]
        except (ValueError, KeyError, TypeError):
            return []
        for name in (f"{number}", f"{number}.compact"):
            try:
                lines = self._folder.read(f"sources/{source}/{name}").decode().splitlines()
                return sorted(one for one in lines[1:] if json.loads(one)["batchId"] == number)
            except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
                continue
        return []


UNKNOWN_WRITER = Writer()
"""The writer of an epoch whose checkpoint is not known."""


def is_new(store: str, ledger: Ledger, query: str, this: CommittedEpoch, writer: Writer) -> bool:
    """Whether an epoch is to be committed; False if it is the last one of its query that is committed.

    Raises
    ------
    StoreError
        STORE_AHEAD, STORE_BEHIND or STORE_IN_USE.
    """
    refuse_second(store, ledger, query, writer)
    last = ledger.queries.get(query)
    if last is None:
        ancestor = writer.ancestor
        last = CommittedEpoch(-1 if ancestor is None else ancestor.epoch)
    if this.epoch < last.epoch:
        what = f"{store} has the results of epochs up to {last.epoch}, and the query runs epoch {this.epoch}"
        why = f"{_compare(last, this)}, so the epoch may have other rows now"
        raise StoreError("STORE_AHEAD", f"{what}: {why}. {BACKUP}")
    if this.epoch == last.epoch:
        if None not in (last.digest, this.digest) and last.digest != this.digest:
            what = f"{store} has the results of epoch {last.epoch} with other input than the query reads now"
            raise StoreError("STORE_AHEAD", f"{what}: {_compare(last, this)}. {BACKUP}")
        return False
    between = range(last.epoch + 1, this.epoch)
    missing = next((epoch for epoch in between if not writer.reads_no_input(epoch)), None)
    if missing is not None:
        runs = f"the query runs epoch {this.epoch}"
        raise _make_behind(store, ledger, query, last.epoch, missing, runs, this.checkpoint)
    return True


def refuse_behind(store: str, ledger: Ledger, query: str | None, writer: Writer) -> None:
    """Raise if a stopped query has committed an epoch that the store lacks. ``query`` is None if it is new.

    Without new input, the query would run no epoch, and nobody would see that the store has been removed.

    Raises
    ------
    StoreError
        STORE_BEHIND.
    """
    if query is None:
        return
    known, ancestor = ledger.queries.get(query), writer.ancestor
    last = known.epoch if known is not None else -1 if ancestor is None else ancestor.epoch
    for epoch in writer.list_committed():
        if epoch > last and not writer.reads_no_input(epoch):
            runs = f"the checkpoint has epoch {epoch}"
            raise _make_behind(store, ledger, query, last, epoch, runs, writer.place)


def _make_behind(
    store: str, ledger: Ledger, query: str, last: int, missing: int, runs: str, checkpoint: str | None
) -> StoreError:
    has = f"epochs up to {last}" if query in ledger.queries else "no epoch"
    what = f"{store} has the results of {has} of the query, and {runs}"
    why = f"the results of epoch {missing} would be missing for ever, because the store was removed, or "
    why += f"is older than the checkpoint {checkpoint or ''}".rstrip()
    return StoreError("STORE_BEHIND", f"{what}: {why}, or another store was written before. {BACKUP}")


def refuse_second(store: str, ledger: Ledger, query: str | None, writer: Writer) -> None:
    """Raise if a query that the store does not know would add to the results of other queries.

    A query whose place a fork has taken is refused too. ``query`` is None if the query has not begun.

    Raises
    ------
    StoreError
        STORE_IN_USE.
    """
    known = None if query is None else ledger.queries.get(query)
    if known is not None and known.successor is not None:
        raise StoreError("STORE_IN_USE", _describe_successor(store, known))
    if writer.is_beside_others or known is not None or not ledger.queries:
        return
    ancestor = writer.ancestor
    if ancestor is not None and ancestor.query in ledger.queries:
        _refuse_late_fork(store, ledger.queries[ancestor.query], ancestor, writer)
        return
    other = next(iter(ledger.queries.values()))
    if other.checkpoint is not None and other.checkpoint == writer.place:
        what = f"{store} has the results of another query that had the same checkpoint {writer.place}"
        why = "the checkpoint was removed and begun again, or its file metadata is lost or altered"
        raise StoreError("STORE_IN_USE", f"{what}: {why}. {BACKUP}")
    whose = f"another query, whose checkpoint is {other.checkpoint}" if other.checkpoint else "another query"
    what = f"{store} has the results of {whose}"
    here = f"the query with the checkpoint {writer.place}" if writer.place else "this query"
    why = f"{here} would add its rows to them, and a query that begins again would add all of them twice"
    hint = (
        "Continue with that checkpoint, or write to another store. If the query got another condition, fork "
        "it (th.fork, thetastream fork). If both queries belong into one store, write "
        "th.write(..., beside_others=True), or beside_others = true in the sink of a job"
    )
    raise StoreError("STORE_IN_USE", f"{what}, and {why}. {hint}")


def find_predecessor(ledger: Ledger, query: str, writer: Writer) -> str | None:
    """Find the query whose place in the store a query takes with its first epoch, because it is its fork."""
    if writer.is_beside_others or query in ledger.queries:
        return None
    ancestor = writer.ancestor
    return ancestor.query if ancestor is not None and ancestor.query in ledger.queries else None


def _refuse_late_fork(store: str, last: CommittedEpoch, ancestor: Ancestor, writer: Writer) -> None:
    """Raise if the old query of a fork has gone on in the store, or another fork has taken its place."""
    if last.successor is not None:
        raise StoreError("STORE_IN_USE", _describe_successor(store, last))
    if last.epoch > ancestor.epoch:
        what = f"{store} has the results of epochs up to {last.epoch} of the old query"
        why = f"the fork {writer.place} begins after epoch {ancestor.epoch}, so pairs would be there twice"
        raise StoreError("STORE_AHEAD", f"{what}, and {why}. Let the fork write to another store")


def _describe_successor(store: str, last: CommittedEpoch) -> str:
    what = f"a fork has taken the place of the query whose results of epochs up to {last.epoch} {store} has"
    return f"{what}. Continue with the fork, or write to another store"


def _compare(last: CommittedEpoch, this: CommittedEpoch) -> str:
    """Say which checkpoint is the one whose results the store has, and which one is the copy."""
    if last.checkpoint is None or this.checkpoint is None:
        return "the checkpoint is an older copy"
    if last.checkpoint == this.checkpoint:
        return f"the checkpoint {this.checkpoint} was replaced by an older copy"
    return (
        f"the last epoch of the store came from the checkpoint {last.checkpoint}, and the query runs "
        f"from {this.checkpoint}: one of the two is a copy of the other"
    )
