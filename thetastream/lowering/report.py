"""Lines of explanations that several families share."""

from collections.abc import Iterator, Sequence

from thetastream.core.condition import TIME
from thetastream.index.base import IndexSpec
from thetastream.lowering.conjunct import Note
from thetastream.lowering.physical import SidePlan


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
) -> Iterator[str]:
    """Yield what each conjunct becomes and what the streams compute before the join."""
    for note in notes:
        yield f"{note.became:8} {format_one_line(note.text)}   ({note.why})"
    for name in predicates:
        yield f"python   {name}   (called on columns of candidates)"
    for side in sides:
        for text in side.filters:
            yield f"before   {side.alias}: {format_one_line(text)}"
        for column, text in side.computed:
            yield f"before   {side.alias}: {column} = {format_one_line(text)}"


def format_average(n: float) -> str:
    """Format a number of copies as a whole number or as an average.

    >>> format_average(2.0), format_average(1.5)
    ('2', '1.5 on average')
    """
    return f"{round(n)}" if abs(n - round(n)) < 0.005 else f"{n:.3g} on average"
