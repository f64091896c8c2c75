"""The shedder of a router: it drops tuples of an epoch by their salted hash, and reports what it dropped.

    tuple t of stream i is dropped in epoch e  <=>  u(hash(t), i, e) < factor(e)        u uniform in [0, 1)

The factor of an epoch follows from the loads of the epochs before. u follows from the tuple, its stream and
the number of the epoch, so an epoch that runs again drops the same tuples. The salt makes the choice
independent of the unit that the same hash chooses, and of the choice for an equal tuple of the other stream.

A semantic shedder has a share for each cell of tuples in place of the one factor (``semantic_shedding``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from thetastream.core.columns import HASH
from thetastream.core.condition import SideSpec
from thetastream.core.keys import HIGHEST, Int64s, Mask, mix
from thetastream.core.shed import STATE, Shed
from thetastream.engine.arrival import read_times
from thetastream.engine.inbox import ShedReport
from thetastream.engine.routing import FindPlaces
from thetastream.engine.semantic_shedding import CELLS, CellCounts, Floats, count_cells, find_cells


@dataclass(frozen=True)
class Shedding:
    """The shedder of a query. Picklable."""

    shed: Shed
    sides: tuple[SideSpec, ...]
    """The streams."""
    places: FindPlaces | None = None
    """Finds the places of tuples, by which a semantic shedder knows their partners; None for a random one."""

    def open(
        self,
        stream: int,
        epoch: int,
        load: int | None,
        least: float = 0.0,
        counts: CellCounts | None = None,
    ) -> "Shedder":
        """Open the shedder of one stream for one epoch.

        ``load`` is the load of the last epochs; None if there is none yet. At least the share ``least`` is
        dropped, whatever the load. ``counts`` are those of the cells in the epochs before, for a semantic
        shedder.
        """
        factor = max(0.0 if load is None else self.shed.compute_factor(load), least)
        shares = None
        if self.places is not None and factor:
            shares = (counts or CellCounts.begin()).compute_shares(stream, factor)
        return Shedder(self, stream, epoch, factor, shares)

    def measure_load(self, mlv_bytes: int, reports: Sequence[ShedReport], began_us: int) -> int:
        """Measure the load after an epoch at one unit: bytes of state, or microseconds of lag.

        Parameters
        ----------
        mlv_bytes : int
            Memory load volume of the unit.
        reports : sequence of ShedReport
            What the router reported to the unit. Without tuples in the epoch, nothing lags.
        began_us : int
            When the epoch began, in microseconds since 1970.
        """
        if self.shed.load == STATE:
            return mlv_bytes
        return max((began_us - time for time in self._find_medians(reports)), default=0)

    def _find_medians(self, reports: Sequence[ShedReport]) -> list[int]:
        """Find the median event time of each stream: the weighted median of the medians of router tasks."""
        medians = []
        for stream in range(len(self.sides)):
            known = sorted(
                (report.median_us, report.counted)
                for report in reports
                if report.stream == stream and report.median_us is not None
            )
            half = sum(counted for _, counted in known) / 2
            for time, counted in known:
                half -= counted
                if half <= 0:
                    medians.append(time)
                    break
        return medians


class Shedder:
    """The shedder of one stream in one epoch and router task."""

    def __init__(
        self, shedding: Shedding, stream: int, epoch: int, factor: float, shares: Floats | None = None
    ) -> None:
        self._shed, self._side, self._places = shedding.shed, shedding.sides[stream], shedding.places
        self._stream, self._factor, self._shares = stream, factor, shares
        self._salt = mix(np.array([epoch * 64 + stream], dtype=np.int64).view(np.uint64))
        self._counts = [0, 0]
        self._arrived, self._kept = np.zeros((2, CELLS), dtype=np.int64)
        self._times: list[Int64s] = []

    def drop(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Mask | None]:
        """Return the tuples that are kept, and which of them look for partners. None means all of them.

        ``batch`` has the column ``h``, the hash of each tuple.
        """
        if self._shed.load != STATE and self._side.time is not None:
            times = read_times(batch, self._side)
            self._times.append(times[times < HIGHEST])
        cells = None if self._places is None else find_cells(self._places, self._stream, batch)
        if cells is not None:
            arrived = count_cells(cells)
            self._arrived += arrived
            self._kept += arrived
        if not self._factor:
            return batch, None
        share = self._factor if self._shares is None else self._shares[cells]
        is_kept = self._choose(batch.column(HASH).to_numpy(zero_copy_only=False), share)
        n_dropped = int(np.count_nonzero(~is_kept))
        self._counts[self._shed.sheds_probes] += n_dropped
        if self._shed.sheds_probes:
            return batch, is_kept
        if cells is not None:
            self._kept -= count_cells(cells[~is_kept])
        return batch.filter(pa.array(is_kept)) if n_dropped else batch, None

    def _choose(self, hashes: Int64s, share: float | Floats) -> Mask:
        """Choose the tuples that are kept. ``share`` is what is dropped, of all tuples or of each."""
        # The upper 53 bits of a mixed hash are a uniform number in [0, 1).
        mixed = mix(hashes.view(np.uint64) ^ self._salt)
        is_kept: Mask = (mixed >> np.uint64(11)) * 2.0**-53 >= share
        return is_kept

    @property
    def report(self) -> ShedReport | None:
        """What the shedder did so far; None if there is nothing to report."""
        times = np.concatenate(self._times) if self._times else np.zeros(0, dtype=np.int64)
        if not any(self._counts) and not len(times) and not self._arrived.any():
            return None
        median_us = int(np.partition(times, len(times) // 2)[len(times) // 2]) if len(times) else None
        shed, shed_probes = self._counts
        cells = (None, None) if self._places is None else (self._arrived.tolist(), self._kept.tolist())
        return ShedReport(self._stream, shed, shed_probes, len(times), median_us, *cells)
