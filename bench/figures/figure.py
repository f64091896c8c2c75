"""What a figure is: a claim of a paper, a measurement as rows, panels drawn from the rows, a verdict."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from bench.figures.timing import Clock

Row: TypeAlias = dict[str, Any]
"""One measured point: settings and figures by name."""


@dataclass(frozen=True)
class Panel:
    """One picture of a figure: y over x, a line per value of ``by``; rows that have all of ``where``."""

    title: str
    x: str
    y: str
    by: str
    labels: tuple[str, str]
    where: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""
    """Axes with a logarithmic scale: "", "x", "y" or "xy"."""
    beside: str = ""
    """A second figure of the rows, such as a formula's, drawn dashed in the colour of its line."""

    def rows(self, rows: list[Row]) -> list[Row]:
        """The rows it shows."""
        return [
            row
            for row in rows
            if all(row.get(name) == value for name, value in self.where.items())
            and row.get(self.y) is not None
        ]


@dataclass(frozen=True)
class Column:
    """One column of the table."""

    title: str
    key: str
    pattern: str = "{}"


@dataclass(frozen=True)
class Verdict:
    """Whether ours agrees with the claim."""

    agrees: str
    """"agrees", "agrees in part" or "does not agree"."""
    ratio: float
    """The figure it rests on; ``text`` carries it."""
    text: str


@dataclass(frozen=True)
class Check:
    """A count of results and the count that it must be."""

    what: str
    expected: int
    found: int

    @property
    def is_equal(self) -> bool:
        """Whether the answer is right."""
        return self.expected == self.found


@dataclass(frozen=True)
class Measured:
    """What a measurement hands back."""

    rows: list[Row]
    verdict: Verdict
    checks: list[Check]
    parameters: dict[str, Any]
    runs: list[Row] = field(default_factory=list)
    """Single runs where a row is the median of several."""


@dataclass(frozen=True)
class Setup:
    """How large and how often."""

    scale: float
    seed: int
    repeat: int
    announce: Callable[[str], None]
    clock: "Clock"
    """Runs whole queries in Spark; starts a session when first asked."""

    def sized(self, n: int, least: int = 64) -> int:
        """``n`` at this scale."""
        return max(least, round(n * self.scale))


@dataclass(frozen=True)
class Figure:
    """One figure of a paper, drawn again."""

    name: str
    title: str
    source: str
    """Paper and figure numbers."""
    claim: str
    """What the paper says, as a sentence."""
    ratio_of: str
    """What the verdict's ratio compares."""
    panels: tuple[Panel, ...]
    columns: tuple[Column, ...]
    measure: Callable[[Setup], Measured]
    needs_spark: bool = False
    is_in_table: Callable[[Row], bool] = lambda row: True
    """Rows of the table; all are in the JSON."""
    truth: str = "DuckDB's"
    """Whose counts of results ours must equal."""


def yes_or_no(holds: bool, partly: bool = False) -> str:
    """A verdict's first words.

    >>> yes_or_no(True), yes_or_no(False, partly=True), yes_or_no(False)
    ('agrees', 'agrees in part', 'does not agree')
    """
    if holds:
        return "agrees"
    return "agrees in part" if partly else "does not agree"
