"""Reads the rows that a store has opened, and names the store if they cannot be read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa

from thetastream.core.errors import QueryError, StoreError
from thetastream.results.backend import make_unreachable


class Place(Protocol):
    """A store, which knows whether its place answers. Its text names it."""

    def answers(self) -> bool: ...


def load(rows: Any, store: Place) -> pa.Table:
    """Read rows that a store has opened."""
    with refuse_damage(str(store), store):
        return rows if isinstance(rows, pa.Table) else rows.to_table()


def load_bounded(rows: Any, store: Place, most_bytes: int) -> pa.Table:
    """Read changes that a store has opened, if they have at most this many bytes.

    Raises
    ------
    QueryError
        TOO_LARGE.
    """
    from thetastream.results.frugal_rows import FrugalRows  # it loads pyarrow.dataset

    kept: list[pa.RecordBatch] = []
    with refuse_damage(str(store), store):
        batches = rows.to_batches() if isinstance(rows, pa.Table) else FrugalRows(rows).scanner().to_batches()
        for batch in batches:
            most_bytes -= batch.nbytes
            if most_bytes < 0:
                what = f"rows of {store} may be deleted, and its changes are too large to be added up"
                raise QueryError("TOO_LARGE", f"{what}: ask for less, by since, until or key")
            kept.append(batch)
    return pa.Table.from_batches(kept, rows.schema)


@contextmanager
def refuse_damage(name: str, store: Place | None = None) -> Iterator[None]:
    """Raise an error of the store if the block cannot read a file that a commit names.

    Arrow raises an OSError for a damaged page, and also if the place of a file does not answer. So if there
    is one, the store is asked whether its place answers.

    Raises
    ------
    StoreError
        STORE_DAMAGED, or STORE_UNREACHABLE if the place of the files does not answer.
    """
    try:
        yield
    except pa.ArrowMemoryError:
        raise
    except (OSError, pa.ArrowException) as error:
        if _is_unreachable(error, store):
            raise make_unreachable(f"the files of {name}", error) from error
        what = f"{name} must have all rows that its commits name, and some of them cannot be read: {error}"
        hint = "If its snapshot was forgotten while you read, read again. Otherwise restore a backup"
        raise StoreError("STORE_DAMAGED", f"{what}. {hint}") from error


def _is_unreachable(error: Exception, store: Place | None) -> bool:
    """Whether an error says that a place does not answer. Errors of the operating system have a number."""
    if not isinstance(error, OSError) or isinstance(error, FileNotFoundError):
        return False
    return error.errno is not None or (store is not None and not store.answers())
