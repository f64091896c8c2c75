"""The second exchange of a join that answers tuples by a condition that Spark evaluates in part.

    first units -> candidate pairs, decided tuples -> Spark drops pairs -> second exchange -> second units

How many pairs Spark drops is not known, so costs are those of all candidate pairs.
"""

from dataclasses import dataclass

from thetastream.core.sides import Side
from thetastream.engine.answers.candidates import CandidateColumns
from thetastream.plan.lower import Lowered
from thetastream.plan.value_bytes import estimate_width


@dataclass(frozen=True)
class SecondExchange:
    """The rows that first units hand to second units: candidate pairs, and each preserved tuple once."""

    preserved: tuple[Side, ...]
    """The streams whose tuples are answered one by one."""
    row_bytes: float
    """Bytes of a row. It has the columns of both streams, and numbers of tuples."""


def find_second_exchange(lowered: Lowered) -> SecondExchange | None:
    """Return the second exchange of a planned join; None if there is none."""
    physical = lowered.physical
    if physical.how.is_inner or not physical.residual:
        return None
    left, right = (tuple(column.block_column for column in side.carried) for side in physical.sides)
    numbers = CandidateColumns(physical.how, (left, right), physical.ranking).types.values()
    values = [estimate_width(column.block_type) for side in physical.sides for column in side.carried]
    return SecondExchange(physical.how.preserved, sum(values) + sum(type_.bit_width / 8 for type_ in numbers))
