"""How a join answers: in pairs of tuples, or in one answer for each tuple of a *preserved* stream.

The partners of a tuple are the tuples with which it satisfies the condition inside the window. They are all
known once the watermark is at or after t + W: the event time of the tuple plus the time that it waits for
partners. From then on the tuple is *decided*.
"""

from dataclasses import dataclass

from thetastream.core.sides import Side


@dataclass(frozen=True)
class How:
    """What the results of a join are."""

    name: str
    """The value of ``how=``."""
    preserved: tuple[Side, ...] = ()
    """The streams whose tuples are answered one by one."""
    has_pairs: bool = True
    """Whether results are pairs. Otherwise they are tuples of the preserved stream."""
    has_unmatched: bool = False
    """Whether a preserved tuple without partners is a result."""

    @property
    def is_inner(self) -> bool:
        """Whether the results are the pairs and nothing else."""
        return not self.preserved

    @property
    def padded(self) -> tuple[Side, ...]:
        """The streams whose columns are NULL in some results.

        >>> HOWS["left"].padded, HOWS["anti"].padded
        ((<Side.RIGHT: 1>,), ())
        """
        return tuple(sorted(side.other for side in self.preserved)) if self.has_pairs else ()

    @property
    def shown(self) -> tuple[Side, ...]:
        """The streams whose columns results have."""
        return tuple(Side) if self.has_pairs else self.preserved


INNER = How("inner")
HOWS: dict[str, How] = {
    how.name: how
    for how in (
        INNER,
        How("left", (Side.LEFT,), has_unmatched=True),
        How("right", (Side.RIGHT,), has_unmatched=True),
        How("full", (Side.LEFT, Side.RIGHT), has_unmatched=True),
        How("semi", (Side.LEFT,), has_pairs=False),
        How("anti", (Side.LEFT,), has_pairs=False, has_unmatched=True),
    )
}
"""The kinds of joins, by the value of ``how=``."""
