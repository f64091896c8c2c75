"""How many tuples of each stream there are to meet, as every node can count it.

A node stores its share of the tuples but sees all of them. Each epoch's tuples of a stream are one entry, how
many they are and the latest of their event times, until the watermark has passed what they can join. As
windows may hold any number of epochs, the smallest neighbours are put together when entries are many: they
stay longer then, by a sixteenth of a window or so.
"""

from collections.abc import Sequence

MOST = 32
"""Entries of a stream."""
Entry = tuple[int, int]
"""Latest event time in microseconds, number of tuples."""


class Census:
    """Tuples held of each stream, over all nodes.

    Parameters
    ----------
    lifetimes_us : sequence of int or None
        Per stream how long after its event time a tuple is kept; None: for ever.
    entries : sequence of lists of (latest event time, number of tuples)
        Per stream, from the state before this epoch.

    Examples
    --------
    >>> census = Census([10], [[(0, 5)]])
    >>> census.add(0, 4, 3)
    >>> census.held(0)
    8
    >>> census.expire(10)
    >>> census.held(0), census.entries
    (3, [[(4, 3)]])
    """

    def __init__(self, lifetimes_us: Sequence[int | None], entries: Sequence[Sequence[Entry]]) -> None:
        self._lifetimes_us = lifetimes_us
        self.entries = [list(stream) for stream in entries] or [[] for _ in lifetimes_us]

    def held(self, stream: int) -> int:
        """How many tuples of a stream there are, over all nodes."""
        return sum(n for _, n in self.entries[stream])

    def add(self, stream: int, latest_us: int, n: int) -> None:
        """Count an epoch's new tuples of a stream."""
        entries = self.entries[stream]
        entries.append((latest_us, n))
        if len(entries) > MOST:
            least = min(range(MOST), key=lambda place: entries[place][1] + entries[place + 1][1])
            first, second = entries[least : least + 2]
            entries[least : least + 2] = [(max(first[0], second[0]), first[1] + second[1])]

    def expire(self, watermark_us: int | None) -> None:
        """Forget those that nothing new can join."""
        if watermark_us is None:
            return
        for stream, lifetime_us in enumerate(self._lifetimes_us):
            if lifetime_us is not None:
                self.entries[stream] = [
                    entry for entry in self.entries[stream] if entry[0] + lifetime_us > watermark_us
                ]
