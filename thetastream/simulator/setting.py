"""The join that is simulated: sizes of tuples, window, index and candidates, for any rate."""

from dataclasses import dataclass

from thetastream.index import REGISTRY
from thetastream.plan.workload import Inflow, Workload

ROUTABLE = ("hash", "hash_sorted")
"""The index shapes of conditions with an equality, by which tuples can be routed."""
SUBINDEXES = 11
"""Subindexes of a window: ten archive periods, and the one that is being filled."""


@dataclass(frozen=True)
class Setting:
    """Two equal streams in a time window.

    Parameters
    ----------
    window_s : float
        The window in seconds.
    stored_bytes : float
        Bytes of a stored tuple with its share of the index.
    sent_bytes : float
        Bytes of a tuple in a block.
    index : str
        The index shape.
    candidates : float
        Stored tuples that the index offers to a probe.
    results : float
        Results that a tuple finds when it arrives.
    delay_s : float
        Delay of the watermark in seconds.
    """

    window_s: float = 300.0
    stored_bytes: float = 100.0
    sent_bytes: float = 60.0
    index: str = "sorted"
    candidates: float = 10.0
    results: float = 1.0
    delay_s: float = 0.0

    @property
    def span_s(self) -> float:
        """How long a tuple is stored, in seconds: the window and half an archive period on average."""
        return self.window_s * (1 + 0.5 / (SUBINDEXES - 1)) + self.delay_s

    def build_workload(self, rate: float) -> Workload:
        """Build the workload of ``rate`` tuples per second, both streams together."""
        left, right = (
            Inflow(alias, rate / 2, self.span_s, self.stored_bytes, self.sent_bytes, SUBINDEXES)
            for alias in ("a", "b")
        )
        content = "hash" if self.index in ROUTABLE else None
        return Workload(
            (left, right), REGISTRY[self.index], self.candidates, heaviest_key=0.0, content=content
        )
