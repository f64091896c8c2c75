"""The rewritten condition: filters, equalities, orderings, bands, a window and residuals."""

from dataclasses import dataclass, field

from thetastream.core.exact import ExactBand, ExactOrder
from thetastream.plan.side_keys import SideKeys


@dataclass(frozen=True)
class Note:
    """What a conjunct became and why. Explain shows it."""

    text: str
    became: str
    why: str


@dataclass(frozen=True)
class Ordering:
    """``LEFT.keys[left] op RIGHT.keys[right] + delta``, where op is one of < <= > >=."""

    left: int
    op: str
    right: int
    delta: int
    conjunct: int
    text: str


@dataclass(frozen=True)
class Band:
    """``|LEFT.keys[left] - RIGHT.keys[right]| <= delta``."""

    left: int
    right: int
    delta: int | float
    text: str


@dataclass(frozen=True)
class Check:
    """A comparison of ``LEFT.keys[left]`` with ``RIGHT.keys[right]`` that units evaluate on the values."""

    left: int
    right: int
    comparison: ExactBand | ExactOrder


@dataclass
class Rewritten:
    """All conjuncts, grouped by what they became."""

    keys: tuple[SideKeys, SideKeys]
    filters: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    equalities: list[tuple[int, int, str]] = field(default_factory=list)
    orderings: list[Ordering] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    window: tuple[int | None, int | None] = (None, None)
    """Bounds of left.ts - right.ts in microseconds."""
    same: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of a left and a right block column that must have equal bytes."""
    checks: list[Check] = field(default_factory=list)
    """Comparisons that are evaluated at the units and not as residuals."""
    possible_checks: list[Check] = field(default_factory=list)
    """Comparisons of residuals that units could evaluate."""
    replaceable: dict[str, tuple[Check, ...]] = field(default_factory=dict)
    """For some residuals, comparisons at the units that have the same meaning."""
    residual: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    ties: bool = False
    """Whether some conjunct reads both streams."""
