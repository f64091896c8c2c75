"""The two sides of a join, the two roles of a tuple."""

from enum import IntEnum


class Side(IntEnum):
    """Which stream a tuple belongs to; R and S in mathematics and kernels."""

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
    """What a unit does with a block: keep its tuples, look for their partners, or both."""

    STORE = 0
    PROBE = 1
    BOTH = 2

    @property
    def parts(self) -> tuple["Role", ...]:
        """The single roles it stands for.

        >>> Role.BOTH.parts, Role.PROBE.parts
        ((<Role.STORE: 0>, <Role.PROBE: 1>), (<Role.PROBE: 1>,))
        """
        return (Role.STORE, Role.PROBE) if self is Role.BOTH else (self,)
