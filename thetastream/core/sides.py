"""The sides of a join and the roles of a tuple."""

from enum import IntEnum


class Side(IntEnum):
    """The stream that a tuple belongs to. In mathematics and kernels, left is R and right is S."""

    LEFT = 0
    RIGHT = 1

    @property
    def other(self) -> "Side":
        """The opposite side.

        >>> Side.LEFT.other
        <Side.RIGHT: 1>
        """
        return Side(1 - self)


class Role(IntEnum):
    """What a unit does with a block: it stores the tuples, looks for their partners, or does both."""

    STORE = 0
    PROBE = 1
    BOTH = 2
    COPY = 6
    """Both, at a unit that does not count the tuples, because another unit counts them. The numbers between
    stand for other kinds of rows of the exchange (``thetastream.core.columns``)."""

    @property
    def parts(self) -> tuple["Role", ...]:
        """The single roles that this role stands for.

        >>> Role.BOTH.parts, Role.PROBE.parts
        ((<Role.STORE: 0>, <Role.PROBE: 1>), (<Role.PROBE: 1>,))
        """
        return (Role.STORE, Role.PROBE) if self in (Role.BOTH, Role.COPY) else (self,)

    @property
    def is_counted(self) -> bool:
        """Whether the unit counts the tuples, so that each tuple is counted once.

        >>> Role.STORE.is_counted, Role.COPY.is_counted
        (True, False)
        """
        return self in (Role.STORE, Role.BOTH)
