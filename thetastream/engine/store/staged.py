"""A store that delays writes, so that a segment that is put and dropped within one epoch is never written."""

from dataclasses import replace

import pyarrow as pa

from thetastream.engine.store.run import Run
from thetastream.engine.store.segment import SegmentMeta, SegmentStore


class StagedStore:
    """A store that keeps the new segments of an epoch in memory until ``write`` is called.

    Parameters
    ----------
    store : SegmentStore
        The store that keeps runs between epochs.
    """

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._staged: dict[str, Run] = {}

    def put(self, meta: SegmentMeta, run: Run) -> int:
        self._staged[meta.id] = run
        return 0

    def get(self, meta: SegmentMeta) -> Run:
        return self._staged.get(meta.id) or self._store.get(meta)

    def drop(self, meta: SegmentMeta) -> None:
        if self._staged.pop(meta.id, None) is None:
            self._store.drop(meta)

    def write(self, meta: SegmentMeta) -> SegmentMeta:
        """Write the run to the store if it is staged; return the updated metadata of the segment."""
        run = self._staged.pop(meta.id, None)
        return meta if run is None else replace(meta, durable_bytes=self._store.put(meta, run))

    def put_block(self, name: str, block: pa.RecordBatch) -> None:
        self._store.put_block(name, block)

    def get_block(self, name: str, n_rows: int) -> pa.RecordBatch:
        return self._store.get_block(name, n_rows)

    def drop_block(self, name: str) -> None:
        self._store.drop_block(name)
