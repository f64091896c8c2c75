"""The handover: how units change if each tuple must meet all its partners at one unit.

    request         ->  a generation is coming: it stores copies of the tuples that may be partners
    marks of units  ->  it takes over: from now on, it stores and answers the new tuples

Let b be the first epoch in which the coming generation gets copies, and c the first epoch after it has taken
over. The older generation answers the tuples that arrive before c, and the coming one answers the others.
Each tuple meets all its partners at the unit that answers it:

- A tuple from before c stays at its unit. Partners that arrive from c on probe there.
- A tuple from c on meets the partners that have arrived from b on, because they were copied. None of its
partners has arrived before b: the units of the older generation have marked that the watermark has passed all
such partners.

So no tuple has to move. A change takes as long as a tuple waits for partners, and during this time these
tuples are stored twice.

If both streams are preserved, tuples of both are copied, and tuples of both probe older generations. Two
generations then find a pair of a tuple from before c and another one from c on. The older one returns it,
and the newer one only remembers that the newer tuple has a partner.

An order of results needs the place of each tuple among all arrivals. There, the coming generation stores no
copies. It only counts the tuples from b on. Marks say how many had arrived before b, and it adds these
numbers when it takes over.
"""

from collections.abc import Collection, Mapping, Sequence

from thetastream.core.errors import QueryError
from thetastream.core.sides import Side
from thetastream.models.base import Model
from thetastream.runtime.control.plan import ControlPlan

_FITTING = {
    (Side.LEFT,): "th.Matrix(n, 1)",
    (Side.RIGHT,): "th.Matrix(1, n)",
    tuple(Side): 'th.Matrix(n, 1, subgroups=n, routing="hash")',
}
"""Models that show each tuple all its partners, by the streams whose tuples are answered one by one."""
NOT_COUNTED: Mapping[int, tuple[int, int]] = {}
"""The numbers of arrived tuples in a join that does not need them."""


def check_partners(model: Model, preserved: Sequence[int]) -> None:
    """Refuse a model whose new units do not show each tuple of the preserved streams all its partners.

    Units that number all tuples are refused too: a new unit does not know how many have arrived.

    Raises
    ------
    QueryError
        CANNOT_SCALE.
    """
    sides = tuple(map(Side, preserved))
    if sides and (model.sees_all or not all(map(model.sees_partners, sides))):
        raise QueryError(
            "CANNOT_SCALE",
            f"a join that answers each tuple cannot become {model!r} while it runs, because its new units "
            f"would not see all partners of a tuple; use {_FITTING[sides]}",
        )


def take_over(
    plan: ControlPlan,
    drained: Collection[tuple[int, int]],
    arrived: Mapping[int, tuple[int, int]] = NOT_COUNTED,
) -> ControlPlan:
    """Let the coming generation store new tuples if all units of the newest one have marked it.

    ``drained`` has (slot, version of the coming generation) for each unit that has received no partner of a
    new tuple without a copy. The plan stays the same if a mark is missing. ``arrived`` has, by the version of
    the coming generation, how many left and right tuples had arrived before it began to count.
    """
    coming = plan.coming
    if coming is None or not {(slot, coming.since) for slot in plan.newest.slots} <= set(drained):
        return plan
    leaving = {**plan.leaving, **dict.fromkeys(plan.newest.slots, plan.version + 1)}
    counted = arrived.get(coming.since)
    membership = (*plan.membership, coming)
    return plan.advance(membership=membership, leaving=leaving, coming=None, arrived=counted)
