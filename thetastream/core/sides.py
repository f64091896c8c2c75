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

    @property
    def parts(self) -> tuple["Role", ...]:
        """The single roles that this role stands for.

        >>> Role.BOTH.parts, Role.PROBE.parts
        ((<Role.STORE: 0>, <Role.PROBE: 1>), (<Role.PROBE: 1>,))
        """
        return (Role.STORE, Role.PROBE) if self is Role.BOTH else (self,)
