"""Rewrites a comparison that bounds event times as a bound of the window.

f OP g, abs(f - g) <= c, abs(e) <= c        where f - g and e follow l.ts - r.ts (``lowering.event_terms``)
"""

from thetastream.conditions import Comparison, Phrase
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import FLIPPED
from thetastream.conditions.tokens import read_call
from thetastream.lowering.conjunct import Conjunct
from thetastream.lowering.event_terms import Term, TermReader, read_limit_us
from thetastream.lowering.event_time import SLACK_US


def narrow_window(conjunct: Conjunct, comparison: Comparison) -> bool:
    """Narrow the window by a comparison; return whether the window means all of it.

    An equality of one expression of each stream is still a key.
    """
    f, op, g = comparison.f, comparison.op, comparison.g
    reader = TermReader(conjunct.query.streams, conjunct.resolver)
    if op == "<=>":
        return False
    if comparison.limit is not None:
        return _narrow_distance(conjunct, reader, reader.subtract(f, g), op, comparison.limit)
    for call, sign, limit in ((read_call(f), op, g), (read_call(g), FLIPPED[op], f)):
        if call is not None and call[0] == "ABS" and len(call[1]) == 1 and sign in ("<", "<="):
            return _narrow_distance(conjunct, reader, _read_difference(reader, call[1][0]), sign, limit)
    term = reader.compare(f, g)
    if term is None:
        return False
    low = int(op == ">") if op in (">", ">=", "=") else None
    high = -int(op == "<") if op in ("<", "<=", "=") else None
    is_key = op == "=" and all(len(find_references(side, conjunct.query.aliases)) == 1 for side in (f, g))
    return _narrow(conjunct, term, low, high) and not is_key


def _read_difference(reader: TermReader, phrase: Phrase) -> Term | None:
    term = reader.read(phrase)
    return term if term is not None and sorted(term.signs) == [-1, 1] else None


def _narrow_distance(
    conjunct: Conjunct, reader: TermReader, term: Term | None, op: str, limit: Phrase
) -> bool:
    """Narrow the window by ``abs(e) OP limit``, where ``term`` is that of e."""
    ends = None if term is None else read_limit_us(limit, term, reader)
    if term is None or ends is None or ends[1] < 0:
        return False
    distance = ends[1] - (op == "<" and ends[0] == ends[1])
    if distance < 0:
        return False
    return _narrow(conjunct, term, -distance, distance) and ends[0] == ends[1]


def _narrow(conjunct: Conjunct, term: Term, low: int | None, high: int | None) -> bool:
    """Narrow the window so that ``unit * e`` may lie between ``low`` and ``high``, in microseconds."""
    slack = SLACK_US if term.is_local else 0
    low = None if low is None else low - term.high - slack
    high = None if high is None else high - term.low + slack
    if term.signs[0] < 0:
        low, high = None if high is None else -high, None if low is None else -low
    conjunct.narrow_window(low, high, term.is_exact)
    return term.is_exact
