"""The number of stored tuples of each stream over all nodes, which every node counts for itself.

A node stores a share of the tuples but sees all of them. The tuples of a stream in an epoch form one entry:
their number and the latest of their event times. The entry is dropped when the watermark has passed
everything that these tuples can join. In a count window, the times are numbers of tuples. A window may span
any number of epochs, so the two smallest neighbouring entries are merged when there are too many. Merged
entries are kept longer, by about a sixteenth of a window.
"""

from collections.abc import Sequence

MOST = 32
"""The largest number of entries of a stream."""
Entry = tuple[int, int]
"""The latest event time in microseconds, and the number of tuples."""


class StoredCounts:
    """The number of stored tuples of each stream, over all nodes.

    Parameters
    ----------
    lifetimes_us : sequence of int or None
        For each stream, how long after its event time a tuple is kept; None means forever.
    entries : sequence of lists of (latest event time, number of tuples)
        The entries of each stream before this epoch, from the state.

    Examples
    --------
    >>> counts = StoredCounts([10], [[(0, 5)]])
    >>> counts.add(0, 4, 3)
    >>> counts.count(0)
    8
    >>> counts.expire([10])
    >>> counts.count(0), counts.entries
    (3, [[(4, 3)]])
    """

    def __init__(self, lifetimes_us: Sequence[int | None], entries: Sequence[Sequence[Entry]]) -> None:
        self._lifetimes_us = lifetimes_us
        self.entries = [list(stream) for stream in entries] or [[] for _ in lifetimes_us]

    def count(self, stream: int) -> int:
        """Count the stored tuples of a stream over all nodes."""
        return sum(n for _, n in self.entries[stream])

    def add(self, stream: int, latest_us: int, n: int) -> None:
        """Add the new tuples of a stream in an epoch."""
        entries = self.entries[stream]
        entries.append((latest_us, n))
        if len(entries) > MOST:
            least = min(range(MOST), key=lambda place: entries[place][1] + entries[place + 1][1])
            first, second = entries[least : least + 2]
            entries[least : least + 2] = [(max(first[0], second[0]), first[1] + second[1])]

    def expire(self, horizons: Sequence[int | None]) -> None:
        """Drop the entries of tuples that no new tuple can join, given the horizon of each stream."""
        lives = zip(self._lifetimes_us, horizons, strict=True)
        for stream, (lifetime_us, horizon) in enumerate(lives):
            if lifetime_us is not None and horizon is not None:
                self.entries[stream] = [
                    entry for entry in self.entries[stream] if entry[0] + lifetime_us > horizon
                ]
