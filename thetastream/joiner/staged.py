"""A store that writes late: what is put and dropped, or moved on, within one epoch is never written."""

from dataclasses import replace

import pyarrow as pa

from thetastream.joiner.run import Run
from thetastream.joiner.segment import SegmentMeta, SegmentStore


class StagedStore:
    """Segments of one epoch in memory, in front of a store.

    Parameters
    ----------
    store : SegmentStore
        Where runs live between epochs.
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

    def written(self, meta: SegmentMeta) -> SegmentMeta:
        """The segment's card once its run is in the store."""
        run = self._staged.pop(meta.id, None)
        return meta if run is None else replace(meta, durable_bytes=self._store.put(meta, run))

    def put_block(self, name: str, block: pa.RecordBatch) -> None:
        self._store.put_block(name, block)

    def get_block(self, name: str, n_rows: int) -> pa.RecordBatch:
        return self._store.get_block(name, n_rows)

    def drop_block(self, name: str) -> None:
        self._store.drop_block(name)
