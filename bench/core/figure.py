"""A figure of a paper has a claim, a measurement as rows, panels drawn from the rows, and a verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.core.columns import Column, columns, write_value
from bench.core.internals import Model
from bench.core.query import Query
from bench.core.replay import Step, replay
from bench.core.rows import Check, Row, Rows

if TYPE_CHECKING:
    from bench.core.clock import Clock, Setting, Timed


@dataclass(frozen=True)
class Panel:
    """One picture of a figure: y over x for the rows with ``where``, and a line for each value of ``by``."""

    title: str
    x: str
    y: str
    by: str
    where: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""
    """The axes with a logarithmic scale: "", "x", "y" or "xy"."""
    beside: str = ""
    """A second value of the rows, such as that of a formula, drawn dashed in the colour of its line."""

    def rows(self, rows: list[Row]) -> Rows:
        return Rows(row for row in Rows(rows).where(**self.where) if row.get(self.y) is not None)


@dataclass(frozen=True)
class Verdict:
    """Whether our measurement agrees with the claim: the claim ``holds``, or holds ``partly``.

    >>> verdict = Verdict(False, 1.2, {"memory (MB):": {"JM": 4.0, "JB": 2.0}}, "JM has copies", partly=True)
    >>> verdict.text, verdict.agrees
    ('memory (MB): JM 4.00, JB 2.00; JM has copies', 'agrees in part')
    """

    holds: bool
    ratio: float
    """The number on which the verdict rests."""
    facts: Mapping[str, Any]
    """Words, and the value that completes them: a number, or a number for each name."""
    remark: str = ""
    """A reason, or what the numbers do not say."""
    partly: bool = False

    @property
    def text(self) -> str:
        told = [f"{words} {write_value(value)}" for words, value in self.facts.items()]
        return "; ".join([*told, self.remark] if self.remark else told)

    @property
    def agrees(self) -> str:
        """The first words of the verdict."""
        return "agrees" if self.holds else "agrees in part" if self.partly else "does not agree"


@dataclass
class Run:
    """The size and number of measurements of a figure, and the measurements so far."""

    scale: float
    seed: int
    repeat: int
    announce: Callable[[str], None]
    clock: "Clock"
    """It runs whole queries in Spark."""
    rows: Rows = field(default_factory=Rows)
    checks: list[Check] = field(default_factory=list)
    parameters: Row = field(default_factory=dict)
    runs: list[Row] = field(default_factory=list)
    """The single runs of rows that are medians."""

    def sized(self, n: int, least: int = 64) -> int:
        return max(least, round(n * self.scale))

    def some(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return all values of a sweep, or only the first and the last at a small scale."""
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
        """Run whole queries in Spark. Each gives a row: its medians, and ``more`` of its first run."""
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
    """One figure of a paper, drawn again. Its name is that of its module, with hyphens."""

    measure: Callable[[Run], Verdict]
    ratio_of: str
    """The two things that the ratio of the verdict compares."""
    panels: tuple[Panel, ...]
    shown: str
    """The columns of the table, as ``bench.core.columns`` reads them."""
    needs_spark: bool = False
    is_in_table: Callable[[Row], bool] = lambda row: True
    """Whether a row is in the table. All rows are in the JSON."""
    truth: str = "DuckDB's"
    """The engine whose counts our counts must equal."""
    doc: str = ""
    """The docstring of the module: title (paper and figure numbers), a paragraph with the claim, remarks."""

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
