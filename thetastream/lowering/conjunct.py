"""A conjunct that is being rewritten, and the rewritten condition to which it adds.

The rewritten condition has filters, equalities, orderings, bands, a window and residuals.
"""

from dataclasses import dataclass, field

from thetastream.conditions import Phrase
from thetastream.core.condition import Domain, ExactBand, ExactOrder
from thetastream.core.measure import MeasureLimit
from thetastream.core.row_limit import RowLimit
from thetastream.core.spans import spell
from thetastream.lowering.physical import Filter
from thetastream.lowering.query import Query, Resolver
from thetastream.lowering.side_keys import SideKeys


@dataclass(frozen=True)
class TypedPair:
    """A left and a right expression, and the common type in which Spark combines them."""

    f: Phrase
    f_type: str
    g: Phrase
    g_type: str
    common: str | None

    @property
    def phrases(self) -> tuple[tuple[Phrase, str], tuple[Phrase, str]]:
        return (self.f, self.f_type), (self.g, self.g_type)

    @property
    def sides(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.f.text, self.f_type), (self.g.text, self.g_type)


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


@dataclass(frozen=True)
class Measured:
    """A measure of a left and a right expression that is compared with a constant, or with a threshold, which
    is an expression of one side."""

    f: Phrase
    g: Phrase
    limit: MeasureLimit | RowLimit
    thresholds: tuple[Phrase | None, Phrase | None] = (None, None)


@dataclass(frozen=True)
class Note:
    """What a conjunct became and why. Explain shows it."""

    text: str
    became: str
    why: str


@dataclass
class Rewritten:
    """All conjuncts, grouped by what they became."""

    keys: tuple[SideKeys, SideKeys]
    has_measures: bool = True
    filters: tuple[list[Filter], list[Filter]] = field(default_factory=lambda: ([], []))
    equalities: list[tuple[int, int, str]] = field(default_factory=list)
    orderings: list[Ordering] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    window: tuple[int | None, int | None] = (None, None)
    """Bounds of left.ts - right.ts in microseconds."""
    same: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of a left and a right block column that must have equal bytes."""
    hashed: list[int] = field(default_factory=list)
    """For each of these pairs, the number of the equality whose keys are its hashes."""
    checks: list[Check] = field(default_factory=list)
    """Comparisons that are evaluated at the units and not as residuals."""
    measured: list[Measured] = field(default_factory=list)
    """Comparisons of a measure with a constant or with a threshold."""
    possible_checks: list[Check] = field(default_factory=list)
    """Comparisons of residuals that units could evaluate."""
    replaceable: dict[str, tuple[Check, ...]] = field(default_factory=dict)
    """For some residuals, comparisons at the units that have the same meaning."""
    residual: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    ties: bool = False
    """Whether some conjunct reads both streams."""


@dataclass(frozen=True)
class Conjunct:
    """A conjunct of a query, and the condition into which it is rewritten."""

    query: Query
    resolver: Resolver
    out: Rewritten
    number: int
    """Its place in the query."""
    phrase: Phrase

    @property
    def text(self) -> str:
        """The conjunct as the user wrote it."""
        return self.phrase.text

    def add_note(self, became: str, why: str) -> None:
        """Note what the conjunct, or a part of it, became."""
        self.out.notes.append(Note(self.text, became, why))

    def add_keys(self, typed: TypedPair, domain: Domain, is_nullable: bool = False) -> tuple[int, int]:
        """Add the keys of both expressions; return their positions."""
        assert typed.common is not None
        left = self.out.keys[0].add(typed.f, typed.f_type, typed.common, domain, is_nullable)
        return left, self.out.keys[1].add(typed.g, typed.g_type, typed.common, domain, is_nullable)

    def narrow_window(self, low: int | None, high: int | None, is_exact: bool) -> None:
        """Narrow the window to these bounds of left.ts - right.ts, in microseconds."""
        a, b = self.query.aliases
        old_low, old_high = self.out.window
        self.out.window = (
            low if old_low is None else old_low if low is None else max(low, old_low),
            high if old_high is None else old_high if high is None else min(high, old_high),
        )
        ends = [f">= {spell(low)}"] * (low is not None) + [f"<= {spell(high)}"] * (high is not None)
        why = f"{a} - {b} {' and '.join(ends)} in event time"
        self.add_note("window", why if is_exact else f"{why}, wide enough for any clock change")

    def add_check(self, left: int, right: int, comparison: ExactBand | ExactOrder) -> bool:
        """Let the units evaluate a comparison of two keys, if they must; return whether they do.

        Pairs of an inner join are filtered behind the units, where Catalyst evaluates the whole conjunct.
        Units that write such pairs into a store evaluate what is possible. Units that answer each tuple must
        know which candidates are partners.
        """
        keys = self.out.keys[0].keys[left], self.out.keys[1].keys[right]
        if any(key.offset for key in keys):
            return False
        check = Check(left, right, comparison)
        if self.query.how.is_inner:
            self.out.possible_checks.append(check)
            return False
        self.out.checks.append(check)
        self.add_note("check", "compared exactly at the units")
        return True
