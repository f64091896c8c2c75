"""Rewrites each conjunct into a form that the engine can use: filters, comparisons of keys, window bounds.

    one stream            -> filter before routing
    f(l) OP g(r)          -> comparison of two key columns in the type in which Spark compares
    abs(f - g) <= c       -> a band of key columns
    f - g OP c            -> a comparison of key columns and a constant
    m(f, g) OP c          -> a measure that units compute, for example the similarity of vectors; c is a
                             constant or an expression of one stream
    NOT BETWEEN           -> the same, of a value and an interval
    bounds on event times -> the window, if f - g, or e of abs(e) <= c, follows l.ts - r.ts
    anything else         -> residual, a filter behind the join

Each form that is used follows logically from the conjunct. If the conjunct requires more, it also stays as a
residual. ``rewrite_comparisons`` and ``rewrite_bands`` rewrite what reads both streams, and ``event_terms``
reads how an expression follows event times.
"""

from thetastream.conditions import Comparison, Phrase, find_comparisons
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import FLIPPED
from thetastream.conditions.sphere import HINT, looks_like_distance
from thetastream.conditions.tokens import read_call
from thetastream.core.sides import Side
from thetastream.lowering.conjunct import Conjunct, Rewritten, TypedPair
from thetastream.lowering.domains import find_family
from thetastream.lowering.event_terms import Term, TermReader, read_limit_us
from thetastream.lowering.event_time import SLACK_US, write_elapsed_time
from thetastream.lowering.physical import Filter
from thetastream.lowering.query import Query, Resolver
from thetastream.lowering.rewrite_bands import read_difference, rewrite_band, rewrite_difference
from thetastream.lowering.rewrite_comparisons import rewrite_comparison
from thetastream.lowering.rewrite_measures import rewrite_measure, rewrite_outside, rewrite_test
from thetastream.lowering.side_keys import SideKeys


def rewrite(
    query: Query,
    resolver: Resolver,
    keys: tuple[SideKeys, SideKeys] | None = None,
    *,
    has_measures: bool = True,
) -> Rewritten:
    """Rewrite the conjuncts of a query. Their keys are added to ``keys`` if it is given.

    ``has_measures`` says whether the units can compute measures.
    """
    left, right = query.streams
    keys = keys or (SideKeys(left, resolver), SideKeys(right, resolver))
    out = Rewritten(keys, has_measures)
    for number, phrase in enumerate(query.conjuncts):
        _rewrite_conjunct(Conjunct(query, resolver, out, number, phrase))
    return out


def _rewrite_conjunct(conjunct: Conjunct) -> None:
    named = find_references(conjunct.phrase, conjunct.query.aliases)
    if not named:
        _rewrite_constant(conjunct)
        return
    alone = conjunct.resolver.type_of(conjunct.text, named) if len(named) == 1 else None
    if alone is not None:
        side = Side(conjunct.query.aliases.index(named[0]))
        conjunct.out.filters[side].append(Filter.read(cast_to_boolean(conjunct.text, alone)))
        conjunct.add_note("filter", f"reads {named[0]} alone, so it runs before routing")
    else:
        conjunct.out.ties = True
        _rewrite_two_sided(conjunct)


def _rewrite_constant(conjunct: Conjunct) -> None:
    # AND accepts strings as booleans.
    constant = conjunct.resolver.constant(f"CAST(({conjunct.text}) AS BOOLEAN)")
    if constant is not None and constant.value is True:
        conjunct.add_note("nothing", "always true")
        return
    text = conjunct.text if constant is None else "false"
    for filters in conjunct.out.filters:
        filters.append(Filter.read(text))
    conjunct.add_note("filter", "reads no stream" if constant is None else "never true: the result is empty")


def _rewrite_two_sided(conjunct: Conjunct) -> None:
    if conjunct.out.has_measures and (rewrite_test(conjunct) or rewrite_outside(conjunct)):
        return
    found = find_comparisons(conjunct.phrase)
    if not found:
        type_ = conjunct.resolver.type_of(conjunct.text, conjunct.query.aliases) or "boolean"
        _keep_residual(conjunct, "no single comparison of a left with a right expression", type_)
        return
    before = len(conjunct.out.possible_checks)
    reasons = [reason for reason in [_rewrite_part(conjunct, comparison) for comparison in found] if reason]
    if reasons:
        _keep_residual(conjunct, "; ".join(dict.fromkeys(reasons)))
    checks = tuple(conjunct.out.possible_checks[before:])
    # If there is a check for each reason, the units can evaluate the whole conjunct.
    if len(checks) == len(reasons) > 0:
        conjunct.out.replaceable[conjunct.out.residual[-1]] = checks


def _keep_residual(conjunct: Conjunct, why: str, type_: str = "boolean") -> None:
    """Let Spark evaluate a conjunct behind the join. If it is a comparison, its type is boolean."""
    text = write_elapsed_time(conjunct.phrase, conjunct.query.aliases, conjunct.resolver)
    conjunct.out.residual.append(cast_to_boolean(text, type_))
    conjunct.add_note("residual", f"{why}; {HINT}" if looks_like_distance(conjunct.phrase) else why)


def _rewrite_part(conjunct: Conjunct, comparison: Comparison) -> str | None:
    """Use one comparison.

    Return None, or the reason why the conjunct must be evaluated again behind the join.
    """
    f, op, g = comparison.f, comparison.op, comparison.g
    named = [find_references(phrase, conjunct.query.aliases) for phrase in (f, g)]
    if comparison.limit is None and sorted(map(len, named)) == [0, 1]:
        _rewrite_one_sided(conjunct, comparison, named[0] or named[1])
        return None
    if narrow_window(conjunct, comparison):
        return None
    if conjunct.out.has_measures and rewrite_measure(conjunct, comparison):
        return None
    difference = None
    if comparison.limit is None and sorted(map(len, named)) == [0, 2]:
        difference = read_difference(comparison, conjunct.query.aliases)
    if difference is not None:
        f, op, g = difference.f, difference.op, difference.g
        named = [find_references(phrase, conjunct.query.aliases) for phrase in (f, g)]
    if [len(names) for names in named] != [1, 1] or named[0] == named[1]:
        return "not one stream on each side of the operator"
    limit = comparison.limit if difference is None else difference.limit
    is_flipped = named[0][0] == conjunct.query.aliases[1]
    if is_flipped:
        f, g, op = g, f, op if limit else FLIPPED[op]
    types = [
        conjunct.resolver.type_of(phrase.text, (alias,))
        for phrase, alias in zip((f, g), conjunct.query.aliases, strict=True)
    ]
    if types[0] is None or types[1] is None:
        return "Catalyst resolves a side only with both streams"
    typed = TypedPair(f, types[0], g, types[1], _find_common_type(conjunct, f, types[0], g, types[1]))
    if limit is None:
        return rewrite_comparison(conjunct, typed, op)
    if difference is None:
        return rewrite_band(conjunct, typed, op, limit)
    return rewrite_difference(conjunct, typed, op, limit, is_flipped)


def _rewrite_one_sided(conjunct: Conjunct, comparison: Comparison, named: tuple[str, ...]) -> None:
    """Use the half of a BETWEEN that reads one stream."""
    side = Side(conjunct.query.aliases.index(named[0]))
    text = f"({comparison.f.text}) {comparison.op} ({comparison.g.text})"
    conjunct.out.filters[side].append(Filter(text))
    conjunct.add_note("filter", f"one end reads {named[0]} alone, so it runs before routing")


def _find_common_type(conjunct: Conjunct, f: Phrase, f_type: str, g: Phrase, g_type: str) -> str | None:
    if f_type == g_type:
        return f_type
    are_texts = f_type.startswith("string") and g_type.startswith("string")
    if not are_texts and (find_family(f_type) is None or find_family(f_type) != find_family(g_type)):
        return None
    return conjunct.resolver.type_of(f"coalesce(({f.text}), ({g.text}))", conjunct.query.aliases)


def cast_to_boolean(text: str, type_: str) -> str:
    """Write a conjunct as a filter.

    AND accepts strings as booleans, but a filter does not, so they are cast.
    """
    return text if type_ == "boolean" else f"CAST(({text}) AS BOOLEAN)"


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
