"""Makes segments, time cells, tiers and pieces of the output as small as they can be.

So small cases have many of them.
"""

import pytest

from thetastream.engine.store import chained_index, period_spans, probing, run


def make_segments_tiny(patch: pytest.MonkeyPatch) -> None:
    """Give each archive period of an epoch a segment of its own."""
    patch.setattr(period_spans, "SHARED_PERIODS", 1)
    patch.setattr(period_spans, "SPARSE_ROWS", 1)
    patch.setattr(period_spans, "SEGMENTS_PER_EPOCH", 1 << 20)


def make_time_cells_tiny(patch: pytest.MonkeyPatch) -> None:
    """Cut each run that spans more than a window into time cells, which may have one row."""
    patch.setattr(run, "MIN_CELL", 1)
    patch.setattr(run, "MIN_CELLS", 1)


def make_all_tiny(patch: pytest.MonkeyPatch) -> None:
    """Make segments and time cells tiny, merge two of a tier, and emit pairs one by one."""
    make_segments_tiny(patch)
    make_time_cells_tiny(patch)
    patch.setattr(chained_index, "FAN_IN", 2)
    patch.setattr(probing, "MIN_PAIRS_AT_ONCE", 1)
    patch.setattr(probing, "PAIRS_AT_ONCE", 1)
