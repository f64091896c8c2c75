"""Decides whether the epoch of a query may be committed.

the query has the last epoch n in the store, and commits epoch m:

m = n        the same input: nothing is to do, because Spark runs an epoch again after a crash
             other input: the checkpoint is a copy that lacks epoch n, so the epoch has other rows
m < n        the checkpoint is older than the store
m = n + 1    the next epoch
m > n + 1    the store is older than the checkpoint, unless the epochs between them read no input
no epoch n   the query is new. m must be 0, and the store must have no results of other queries
"""

from thetastream.core.errors import StoreError
from thetastream.results.ledger import CommittedEpoch, Ledger
from thetastream.results.writer import Writer

BACKUP = "Restore checkpoint and store from one backup, or begin with a new checkpoint and a new store"


def is_new(store: str, ledger: Ledger, query: str, this: CommittedEpoch, writer: Writer) -> bool:
    """Whether an epoch is to be committed; False if it is the last one of its query that is committed.

    Raises
    ------
    StoreError
        STORE_AHEAD, STORE_BEHIND or STORE_IN_USE.
    """
    last = ledger.queries.get(query)
    if last is None:
        refuse_second(store, ledger, query, writer)
        last = CommittedEpoch(-1)
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
        has = f"epochs up to {last.epoch}" if last.epoch >= 0 else "no epoch"
        what = f"{store} has the results of {has} of the query, and the query runs epoch {this.epoch}"
        why = f"the results of epoch {missing} would be missing for ever, because the store is older than "
        why += f"the checkpoint {this.checkpoint or ''}".rstrip()
        raise StoreError("STORE_BEHIND", f"{what}: {why}, or another store was written before. {BACKUP}")
    return True


def refuse_second(store: str, ledger: Ledger, query: str | None, writer: Writer) -> None:
    """Raise if a query that the store does not know would add to the results of other queries.

    ``query`` is None if the query has not begun.

    Raises
    ------
    StoreError
        STORE_IN_USE.
    """
    if writer.is_beside_others or query in ledger.queries or not ledger.queries:
        return
    other = next(iter(ledger.queries.values()))
    whose = f"another query, whose checkpoint is {other.checkpoint}" if other.checkpoint else "another query"
    what = f"{store} has the results of {whose}"
    here = f"the query with the checkpoint {writer.place}" if writer.place else "this query"
    why = f"{here} would add its rows to them, and a query that begins again would add all of them twice"
    hint = "Continue with that checkpoint, or write to another store. If both queries belong into one store, "
    raise StoreError("STORE_IN_USE", f"{what}, and {why}. {hint}write th.write(..., beside_others=True)")


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
