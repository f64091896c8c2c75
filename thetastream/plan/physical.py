"""What lowering produces and the Spark rim runs: SQL texts, key columns, an index per side.

All SQL texts here are evaluated by Catalyst over a frame with one struct column per alias, so
``a.price`` means what the user wrote.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from thetastream.condition import Condition, IndexSpec


@dataclass(frozen=True)
class Carried:
    """How one payload column travels through the Arrow blocks.

    ``to_block`` computes the block column from the alias' struct column; ``from_block`` restores
    the user's column, exactly, from a column named ``block_column`` of the engine's output.
    ``is_flat`` says whether the block column may leave the stateful operator as a pandas column
    (an atomic type); nested types leave as Arrow blocks and are unpacked one step later.
    """

    field: str
    block_column: str
    block_type: str
    """DDL of the block column, e.g. ``bigint``."""
    to_block: str
    from_block: str
    is_flat: bool


@dataclass(frozen=True)
class SidePlan:
    """One input stream: pre-filters, key columns, payload."""

    alias: str
    filters: tuple[str, ...]
    computed: tuple[tuple[str, str], ...]
    """(block column, SQL) of the key columns Catalyst computes before routing."""
    carried: tuple[Carried, ...]


@dataclass(frozen=True)
class PhysicalPlan:
    """A binary join ready to run, less the model that places it on units."""

    sides: tuple[SidePlan, SidePlan]
    condition: Condition
    indexes: tuple[IndexSpec, IndexSpec]
    """Index of the tuples stored from the left, from the right."""
    residual: tuple[str, ...]
    """Conjuncts Catalyst evaluates behind the join."""
    archive_period_us: int | None
    """Span of event time of one subindex, in microseconds; None for full history and count windows."""
    counts: tuple[int, int] | None = None
    """How many tuples of left and right stay joinable, in a count window."""


def described(sides: Sequence[SidePlan]) -> dict[str, str]:
    """What a checkpoint holds on to of the streams: columns, keys and filters by alias."""
    return {
        f"stream {side.alias}": "; ".join(
            [
                *(f"{carried.field} {carried.block_type}" for carried in side.carried),
                *(f"{name} = {text}" for name, text in side.computed),
                *(f"where {text}" for text in side.filters),
            ]
        )
        for side in sides
    }
