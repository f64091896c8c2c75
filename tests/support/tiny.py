"""Makes segments, tiers and pieces of the output as small as they can be, so that small cases have many."""

import pytest

from thetastream.engine.store import archive_periods, chained_index, probing


def make_segments_tiny(patch: pytest.MonkeyPatch) -> None:
    """Give each archive period of an epoch a segment of its own."""
    patch.setattr(archive_periods, "SHARED_PERIODS", 1)
    patch.setattr(archive_periods, "SPARSE_ROWS", 1)
    patch.setattr(archive_periods, "SEGMENTS_PER_EPOCH", 1 << 20)


def make_all_tiny(patch: pytest.MonkeyPatch) -> None:
    """Make segments tiny, merge two of a tier, and emit pairs one by one."""
    make_segments_tiny(patch)
    patch.setattr(chained_index, "FAN_IN", 2)
    patch.setattr(probing, "MIN_PAIRS_AT_ONCE", 1)
    patch.setattr(probing, "PAIRS_AT_ONCE", 1)
