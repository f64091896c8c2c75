"""What a figure of a paper is: a claim, a measurement as rows, panels drawn from the rows, a verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.core.columns import Column, columns
from bench.core.internals import Model
from bench.core.query import Query
from bench.core.replay import Step, replay
from bench.core.rows import Check, Row, Rows

if TYPE_CHECKING:
    from bench.core.clock import Clock, Setting, Timed


@dataclass(frozen=True)
class Panel:
    """One picture of a figure: y over x, a line per value of ``by``; rows that have all of ``where``."""

    title: str
    x: str
    y: str
    by: str
    where: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""
    """Axes with a logarithmic scale: "", "x", "y" or "xy"."""
    beside: str = ""
    """A second figure of the rows, such as a formula's, drawn dashed in the colour of its line."""

    def rows(self, rows: list[Row]) -> Rows:
        return Rows(row for row in Rows(rows).where(**self.where) if row.get(self.y) is not None)


@dataclass(frozen=True)
class Verdict:
    """Whether ours agrees with the claim: it ``holds``, or holds ``partly``."""

    holds: bool
    ratio: float
    """The figure it rests on; ``text`` carries it."""
    text: str
    partly: bool = False

    @property
    def agrees(self) -> str:
        """The verdict's first words.

        >>> Verdict(False, 1.2, "", partly=True).agrees
        'agrees in part'
        """
        return "agrees" if self.holds else "agrees in part" if self.partly else "does not agree"


@dataclass
class Run:
    """How large and how often a figure is measured, and what was measured so far."""

    scale: float
    seed: int
    repeat: int
    announce: Callable[[str], None]
    clock: "Clock"
    """Runs whole queries in Spark; starts a session when first asked."""
    rows: Rows = field(default_factory=Rows)
    checks: list[Check] = field(default_factory=list)
    parameters: Row = field(default_factory=dict)
    runs: list[Row] = field(default_factory=list)
    """Single runs where a row is the median of several."""

    def sized(self, n: int, least: int = 64) -> int:
        return max(least, round(n * self.scale))

    def some(self, values: Sequence[Any]) -> Sequence[Any]:
        """All values of a sweep, the first and the last at a small scale."""
        return values if self.scale >= 1 else (values[0], values[-1])

    def add(self, **row: Any) -> Row:
        self.rows.append(row)
        return row

    def check(self, what: str, expected: int, found: int) -> None:
        self.checks.append(Check(what, expected, found))

    def replay(self, query: Query, model: Model, epochs: int, what: str) -> list[Step]:
        """Run a query in one process and check its number of results."""
        self.announce(what)
        steps = list(replay(query, model, epochs))
        self.check(what, query.expected, sum(step.results for step in steps))
        return steps

    def compare(self, settings: "list[Setting]", *more: str) -> "dict[str, Timed]":
        """Run whole queries in Spark: a row of each with its medians, and ``more`` of its first run."""
        timed = self.clock.compare(settings, self.repeat, self.announce)
        for setting in settings:
            one = timed[setting.name]
            self.add(**setting.row, **one.median, **{name: one.runs[0][name] for name in more})
            self.checks.append(one.check)
        keep = ("setting", "tuples_per_s", "cpu_us_per_tuple", "epoch_ms_p50", "load_before")
        self.runs += [{key: run[key] for key in keep} for one in timed.values() for run in one.runs]
        return timed


@dataclass(frozen=True)
class Figure:
    """One figure of a paper, drawn again; its module's name is the figure's, with hyphens."""

    doc: str
    """Title (paper and figure numbers), a paragraph with the claim, and more for readers of the code."""
    measure: Callable[[Run], Verdict]
    ratio_of: str
    """What the verdict's ratio compares."""
    panels: tuple[Panel, ...]
    shown: str
    """Columns of the table (``bench.core.columns``)."""
    needs_spark: bool = False
    is_in_table: Callable[[Row], bool] = lambda row: True
    """Rows of the table; all are in the JSON."""
    truth: str = "DuckDB's"
    """Whose counts of results ours must equal."""

    @property
    def title(self) -> str:
        return self._paragraph(0).partition(" (")[0]

    @property
    def source(self) -> str:
        return self._paragraph(0).partition(" (")[2].removesuffix(").")

    @property
    def claim(self) -> str:
        return self._paragraph(1)

    def _paragraph(self, number: int) -> str:
        return self.doc.split("\n\n")[number].strip().replace("\n", " ")

    @property
    def columns(self) -> tuple[Column, ...]:
        return columns(self.shown)
