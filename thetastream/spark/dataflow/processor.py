"""Spark's stateful processor of a unit: one grouping key is one unit, and one call is one epoch.

Before a query starts, Spark runs ``init`` in a new Python process to learn which state the operator has. The
class is therefore pickled by value, and its ``UnitEpoch`` as bytes. So this process does not load this
package, NumPy, Arrow, pandas and Numba, which would take a second or two.
"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

if TYPE_CHECKING:
    import pandas as pd

    from thetastream.runtime.epoch import UnitEpoch

_MANIFEST = StructType([StructField("manifest", StringType())])
_PART_KEY = StructType([StructField("id", StringType()), StructField("part", IntegerType())])
_PART = StructType([StructField("data", BinaryType())])


class JoinProcessor(StatefulProcessor):
    """Calls ``UnitEpoch.run`` with the rows, timers and state that Spark provides."""

    def __init__(self, epoch: "UnitEpoch") -> None:
        self._packed: bytes = cloudpickle.dumps(epoch)  # type: ignore[no-untyped-call]

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._manifest = handle.getValueState("manifest", _MANIFEST)
        self._parts = handle.getMapState("segments", _PART_KEY, _PART)
        self._handle = handle
        self._epoch: Any = None

    def handleInputRows(  # type: ignore[override]
        self, key: Any, rows: "Iterator[pd.DataFrame]", timerValues: Any
    ) -> "Iterator[pd.DataFrame]":
        yield from self._run(key, rows, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> "Iterator[pd.DataFrame]":
        yield from self._run(key, None, timerValues)

    def _run(self, key: Any, rows: "Iterator[pd.DataFrame] | None", timers: Any) -> "Iterator[pd.DataFrame]":
        if self._epoch is None:
            self._epoch = cloudpickle.loads(self._packed)
        return self._epoch.run(int(key[0]), rows, timers, self._manifest, self._parts, self._handle)  # type: ignore[no-any-return]

    def close(self) -> None:
        pass


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
