"""Explanations as values: sections of facts, their printer as text, and facts that several families share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from thetastream.core.condition import TIME
from thetastream.index.base import IndexSpec
from thetastream.lowering.conjunct import Note
from thetastream.lowering.physical import SidePlan


@dataclass(frozen=True)
class Fact:
    """One line of an explanation: what it is about, its value, and the reason."""

    what: str
    """The label. It is empty if the value needs none."""
    value: str
    why: str = ""


@dataclass(frozen=True)
class Section:
    """A part of an explanation: facts, or further sections, under a title."""

    title: str
    facts: tuple[Fact, ...] = ()
    width: int = 0
    """The width of the column of labels in text. Longer labels move their value to the right."""
    sections: "tuple[Section, ...]" = ()
    marks: str = "=="
    """The marks on both sides of the title in text."""

    @property
    def is_group(self) -> bool:
        """Whether only its marks could tell its title from the titles of its sections, and they are equal."""
        return any(section.marks == self.marks for section in self.sections)


def print_sections(sections: Sequence[Section]) -> str:
    """Print sections as text, with one fact per line and an empty line between two sections.

    >>> shaped = Section("Shaped", (Fact("window", "a - b", "given"), Fact("", "no key")), width=8)
    >>> print(print_sections([shaped, Section("Cost", (Fact("probe:", "1"),))]), end="")
    == Shaped ==
    window   a - b   (given)
    no key
    <BLANKLINE>
    == Cost ==
    probe: 1
    """
    texts = []
    for before, section in zip((None, *sections), sections, strict=False):
        # Titles of neighbouring groups look like those of the sections in them, so they get more room.
        if before is not None:
            texts.append("\n\n" if before.is_group and section.is_group else "\n")
        texts.append(_print_section(section))
    return "".join(texts)


def _print_section(section: Section) -> str:
    lines = "".join(f"{_print_fact(fact, section.width)}\n" for fact in section.facts)
    return f"{section.marks} {section.title} {section.marks}\n{lines}{print_sections(section.sections)}"


def _print_fact(fact: Fact, width: int) -> str:
    text = f"{fact.what:{width}} {fact.value}" if fact.what else fact.value
    return f"{text}   ({fact.why})" if fact.why else text


def format_one_line(text: str) -> str:
    """Return the text on one line, with single blanks."""
    return " ".join(text.split())


def format_index(index: IndexSpec) -> str:
    """Return the shape of an index and the parts of the condition that it answers."""
    parts = [f"equality {n}" for n in index.equalities]
    parts += ["window" if n == TIME else f"dimension {n}" for n in index.dimensions]
    return f"{index.shape.name} on {', '.join(parts)}" if parts else index.shape.name


def explain_rewritten(
    notes: Sequence[Note], predicates: Sequence[str], sides: Sequence[SidePlan]
) -> Iterator[Fact]:
    """Yield what each conjunct becomes and what the streams compute before the join."""
    for note in notes:
        yield Fact(note.became, format_one_line(note.text), note.why)
    for name in predicates:
        yield Fact("python", name, "called on columns of candidates")
    for side in sides:
        for passed in side.filters:
            yield Fact("before", f"{side.alias}: {format_one_line(passed.text)}")
        for column, text in side.computed:
            yield Fact("before", f"{side.alias}: {column} = {format_one_line(text)}")


def format_average(n: float) -> str:
    """Format a number of copies as a whole number or as an average.

    >>> format_average(2.0), format_average(1.5)
    ('2', '1.5 on average')
    """
    return f"{round(n)}" if abs(n - round(n)) < 0.005 else f"{n:.3g} on average"
