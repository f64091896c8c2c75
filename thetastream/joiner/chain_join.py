"""The handshake chain's query: what is stored of each stream, and how S are found by number.

Silence (``thetastream.joiner.protocol``) has R meet the S from one number to another: two keys more on the
probing side, one on the stored one, and a dimension between them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from thetastream.condition import Bound, Condition, Dimension, Domain, IndexSpec, Key
from thetastream.joiner.box import Plan
from thetastream.joiner.chain import ChainSpec, joinable_us
from thetastream.joiner.protocol import Group
from thetastream.models.chain import Chain
from thetastream.types import Side

NUMBER = "number"
"""Block column of S: its place among all tuples of S."""
FIRST, END = "first", "end"
"""Columns of probing R: numbers of the S that they meet."""
COPIES = 3
"""Stream of the first copies in a manifest; each block's copies have one of their own."""


@dataclass(frozen=True)
class ChainJoin:
    """All that a worker needs to know of the query; picklable."""

    condition: Condition
    indexes: tuple[IndexSpec, IndexSpec]
    archive_period_us: int | None
    model: Chain

    @cached_property
    def numbered(self) -> Condition:
        """The condition, S with their numbers as a key."""
        left, right = self.condition.sides
        return replace(
            self.condition, sides=(left, replace(right, keys=(*right.keys, Key(NUMBER, Domain.INT))))
        )

    @cached_property
    def limited(self) -> Plan:
        """How R look for S from one number to another."""
        left, right = self.numbered.sides
        n = len(left.keys)
        probing = replace(left, keys=(*left.keys, Key(FIRST, Domain.INT), Key(END, Domain.INT)))
        numbers = Dimension(Side.RIGHT, len(right.keys) - 1, Bound(n), Bound(n + 1, is_strict=True), NUMBER)
        condition = replace(
            self.numbered, sides=(probing, right), dimensions=(*self.numbered.dimensions, numbers)
        )
        return Plan(condition, Side.RIGHT, self.indexes[Side.RIGHT])

    def stored(self, stream: int) -> ChainSpec:
        """How tuples of a group, or copies, are stored."""
        side = Group(min(stream, Group.S)).side
        lifetime = joinable_us(self.condition.window, side)
        plan = self._plans[side]
        return ChainSpec(stream, plan, None if lifetime is None else self.archive_period_us, lifetime)

    @cached_property
    def _plans(self) -> tuple[Plan, Plan]:
        left, right = (Plan(self.numbered, side, self.indexes[side]) for side in Side)
        return left, right

    @property
    def plans(self) -> Mapping[int, Plan]:
        """The index of every stream in a manifest."""
        return _Plans(self._plans)


class _Plans(dict[int, Plan]):
    def __init__(self, plans: tuple[Plan, Plan]) -> None:
        super().__init__({group: plans[group.side] for group in Group})

    def __missing__(self, stream: int) -> Plan:
        return self[Group.S]
