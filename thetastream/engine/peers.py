"""The other units of a join whose units may change while it runs, as one unit sees them in an epoch."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Peers(NamedTuple):
    """The generations of units that are alive, and whether this unit still stores new tuples."""

    generations: tuple[tuple[Any, tuple[int, ...]], ...] = ()
    """For each generation that holds tuples, newest first: its model, and the slots of its units. It is empty
    for an engine whose units send no messages."""
    slots: tuple[int, ...] = ()
    """The slots of the generation of this unit. It is empty in the epoch before a unit stores its first
    tuple."""
    last_epoch: int | None = None
    """The last epoch in which this unit stores new tuples. None if its generation is the newest one."""
    slot: int | None = None
    """The slot of this unit. None if it is the number of the unit, because units do not change."""
    began: int | None = -1
    """The epoch in which this unit took over from an older generation; None if it has not."""
    arrived: Sequence[int] | None = None
    """How many left and right tuples had arrived before this unit began to count. It is told once."""

    def is_newest(self, epoch: int) -> bool:
        """Whether this unit stores the new tuples of an epoch, in a join whose generations take over.

        >>> Peers(began=4).is_newest(4), Peers(began=4).is_newest(5), Peers(began=None).is_newest(5)
        (False, True, False)
        """
        return self.began is not None and epoch > self.began and not self.has_left(epoch)

    def has_left(self, epoch: int) -> bool:
        """Whether new tuples of an epoch are stored by a newer generation.

        >>> Peers(last_epoch=4).has_left(4), Peers(last_epoch=4).has_left(5), Peers().has_left(5)
        (False, True, False)
        """
        return self.last_epoch is not None and epoch > self.last_epoch

    @property
    def share_of_sender(self) -> float:
        """Which part of the tuples that a unit may receive in an epoch comes from each unit that leaves.

        >>> Peers(((None, (4, 5)), (None, (0, 1, 2, 3)))).share_of_sender
        0.5
        >>> Peers(((None, (2, 3, 4)), (None, (0, 1, 2)))).share_of_sender
        1.0
        """
        newest, *older = (slots for _, slots in self.generations)
        senders = {slot for slots in older for slot in slots} - set(newest)
        return min(1.0, len(newest) / max(1, len(senders)))


ALONE = Peers()
"""The peers of a unit of a join whose units do not change."""
