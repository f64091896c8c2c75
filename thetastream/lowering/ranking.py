"""Reads ``by=`` of ``th.Nearest``: which columns Catalyst computes, and how units combine them.

abs(f - g), f - g, g - f, f, g, m(f, g)        where f reads the left stream only, and g the right one,
                                               and m is a measure
c - m(f, g), m(f, g) + m(h, i) + ...           as in a comparison

Integers and decimals of up to 18 digits have a common type of more digits, which no key holds. Then values
are ranked in the type of g, or units compute the difference in 16 bytes if f has more decimals than g.

Instants are ranked as numbers of microseconds, so that the rank is the same in every session time zone.
"""

from dataclasses import dataclass

from thetastream.conditions import Phrase, parse
from thetastream.conditions.names import find_references, quote_names
from thetastream.conditions.phrases import find_last_additive
from thetastream.conditions.refused import find_refused
from thetastream.conditions.sphere import HINT, looks_like_distance
from thetastream.conditions.tokens import read_call
from thetastream.core.condition import Domain
from thetastream.core.errors import QueryError
from thetastream.core.how import DISTANCE, Nearest, Ranking
from thetastream.core.measure import PairMeasure
from thetastream.core.spark_types import is_integral, parse_decimal
from thetastream.lowering.domains import find_domain, write_key
from thetastream.lowering.query import Query, Resolver, Stream
from thetastream.lowering.rewrite_measures import read_number


@dataclass(frozen=True)
class LoweredRanking:
    """The ranking of pairs, and the SQL of the value of each side; None if a side has no value."""

    ranking: Ranking
    texts: tuple[str | None, str | None]
    phrases: tuple[Phrase | None, Phrase | None] = (None, None)
    """The expression over each stream, if pairs are ranked by one."""

    def prefers_latest(self, left: Stream, right: Stream) -> bool:
        """Whether the latest partner, by the event time of the right stream, is the only nearest one.

        The left expression must be the event time, too: if it is NULL, all partners are equally near.
        """
        ranking = self.ranking
        if ranking.is_abs or ranking.is_flipped or not _is_event_time(self.phrases[1], right):
            return False
        if ranking.has_left:
            return not ranking.is_descending and _is_event_time(self.phrases[0], left)
        return ranking.is_descending


def _is_event_time(phrase: Phrase | None, stream: Stream) -> bool:
    """Whether an expression is the event time of a stream."""
    if phrase is None or stream.event_time is None:
        return False
    names = [token.name.casefold() for token in phrase.bare().tokens if token.text != "."]
    return names == [stream.alias.casefold(), stream.event_time.casefold()]


@dataclass(frozen=True)
class LoweredMeasure:
    """A ranking by a measure of a left and a right expression."""

    k: int
    measure: PairMeasure
    arguments: tuple[Phrase, Phrase]
    is_descending: bool


def lower_ranking(nearest: Nearest, query: Query, resolver: Resolver) -> LoweredRanking | LoweredMeasure:
    """Read ``by=``.

    Raises
    ------
    QueryError
        NEAREST if the expression has another form, or a type that units cannot rank.
    """
    # 1. Cut off the order.
    for problem in find_refused(parse(nearest.by)):
        raise problem
    phrase, is_descending, has_nulls_first = _cut_order(quote_names(parse(nearest.by)))
    is_similarity = nearest.direction != DISTANCE
    if is_similarity and phrase.text != quote_names(parse(nearest.by)).bare().text:
        what = f"direction={nearest.direction!r} ranks the greatest value first"
        raise QueryError("NEAREST", f"{what}; leave out what stands behind the expression in {nearest.by!r}")
    is_descending |= is_similarity
    # 2. Read a measure, or an expression over one stream.
    call = read_number(phrase, query, resolver)
    if call is not None and call.measure.ranks:
        if call.problem is not None or has_nulls_first:
            raise _make_error(nearest, call.problem or "NULL is the last of the values of a measure")
        return LoweredMeasure(nearest.k, call.measure, call.arguments, is_descending)
    order = {
        "is_descending": is_descending,
        "has_nulls_first": has_nulls_first,
        "has_nan_last": is_similarity,
    }
    is_abs = phrase.slice(0, 2).text.replace(" ", "").upper() == "ABS(" and _is_closed(phrase)
    inner = phrase.slice(2, -1).bare() if is_abs else phrase
    named = find_references(phrase, query.aliases)
    if len(named) == 1:
        side = query.aliases.index(named[0])
        type_ = resolver.type_of(phrase.text, named)
        domain = None if type_ is None else _find_domain(type_)
        if type_ is None or domain is None:
            raise _make_error(nearest, f"its type is {type_ or 'unknown'}")
        text = _write_value(phrase, type_, type_)
        ranking = Ranking(nearest.k, domain, side == 0, side == 1, is_single=type_ == "float", **order)
        if side == 0:
            return LoweredRanking(ranking, (text, None), (phrase, None))
        return LoweredRanking(ranking, (None, text), (None, phrase))
    # 3. Read a difference: the operands, and the type in which Spark subtracts them.
    sign = find_last_additive(inner)
    if len(named) != 2 or sign is None or inner.tokens[sign].kind != "DASH":
        raise _make_error(nearest, _describe_form(phrase))
    parts = [inner.slice(0, sign), inner.slice(sign + 1)]
    owners = [find_references(part, query.aliases) for part in parts]
    if [len(owner) for owner in owners] != [1, 1] or owners[0] == owners[1]:
        raise _make_error(nearest, "the operands of the difference read other streams")
    types = [resolver.type_of(part.text, owner) or "" for part, owner in zip(parts, owners, strict=True)]
    if "" in types:
        raise _make_error(nearest, "Spark does not know a column or a function in it")
    common = types[0]
    if types[0] != types[1]:
        common = resolver.type_of(f"coalesce(({parts[0].text}), ({parts[1].text}))", query.aliases) or ""
    domain = _find_domain(common)
    is_mixed = domain is None and all(map(_is_short_number, types))
    is_text = [type_.startswith("string") for type_ in types]
    if any(is_text) or not (domain or is_mixed) or resolver.type_of(inner.text, query.aliases) is None:
        why = f"its operands are {types[0].upper()} and {types[1].upper()}"
        if sum(is_text) == 1:
            # Spark would cast the text, and end the query at a text that is no number or time.
            text, type_ = parts[is_text.index(True)].text, types[is_text.index(False)].upper()
            why += f"; try_cast({text} AS {type_}) is NULL for a text that is no {type_}"
        raise _make_error(nearest, why)
    # 4. Write the value of each side in a type that a key holds.
    is_flipped = owners[0][0] == query.aliases[1]
    texts = [_write_value(part, type_, common) for part, type_ in zip(parts, types, strict=True)]
    right = 0 if is_flipped else 1
    if is_mixed and is_abs and _find_scale(types[right]) < _find_scale(types[1 - right]):
        domain = Domain.WIDE_DECIMAL
    elif is_mixed:
        # All partners of a tuple have the same left operand f. So f - g ranks them as 0 - g does, and
        # abs(f - g) ranks them as if f were the value nearest to f that the type of g has.
        kind = "bigint" if is_integral(types[right]) else types[right]
        domain = find_domain(kind)
        texts[right] = _write_value(parts[right], types[right], kind)
        f = parts[1 - right].text
        texts[1 - right] = f"CASE WHEN ({f}) IS NOT NULL THEN {_clip(f, kind) if is_abs else '0'} END"
        texts[1 - right] = f"CAST({texts[1 - right]} AS {kind.upper()})"
    if is_flipped:
        texts.reverse()
    assert domain is not None
    ranking = Ranking(nearest.k, domain, True, True, is_flipped, is_abs, common == "float", **order)
    return LoweredRanking(ranking, (texts[0], texts[1]), (parts[1 - right], parts[right]))


def _cut_order(phrase: Phrase) -> tuple[Phrase, bool, bool]:
    """Cut off ASC or DESC, and NULLS FIRST or NULLS LAST; say whether it is DESC and NULLS FIRST."""
    words = [token.keyword if token.kind != "FIELD" else "" for token in phrase.tokens]
    has_nulls_first = False
    if len(words) > 2 and words[-2] == "NULLS" and words[-1] in ("FIRST", "LAST"):
        has_nulls_first = words[-1] == "FIRST"
        phrase, words = phrase.slice(0, -2), words[:-2]
    if len(words) > 1 and words[-1] in ("ASC", "DESC"):
        return phrase.slice(0, -1).bare(), words[-1] == "DESC", has_nulls_first
    return phrase.bare(), False, has_nulls_first


def _describe_form(phrase: Phrase) -> str:
    """Say why an expression over two streams is neither a difference nor a measure."""
    if looks_like_distance(phrase):
        return f"it has another form; {HINT}"
    call = read_call(phrase.bare())
    if call is None or call[0] != "LEVENSHTEIN" or len(call[1]) != 3:
        return "it has another form"
    f, g, k = (argument.text for argument in call[1])
    return (
        "levenshtein with a limit is -1 for texts that differ more, which would be the least distance; "
        f"rank by levenshtein({f}, {g}), and write levenshtein({f}, {g}) <= {k} in the condition"
    )


def _find_scale(type_: str) -> int:
    """Return the number of decimals of an integer or decimal type."""
    decimal = parse_decimal(type_)
    return decimal[1] if decimal else 0


def _clip(text: str, type_: str) -> str:
    """Write the value nearest to an integer or a decimal that a type of as many decimals or more has.

    >>> _clip("a.n", "decimal(5,2)")
    'greatest(least((a.n), 999.99BD), -999.99BD)'
    """
    decimal = parse_decimal(type_)
    if not decimal:
        return f"({text})"
    digits, scale = decimal
    limit = f"{'9' * (digits - scale) or '0'}.{'9' * scale}BD"
    return f"greatest(least(({text}), {limit}), -{limit})"


def _is_short_number(type_: str) -> bool:
    """Whether the values of a type are integers or decimals of up to 18 digits."""
    return is_integral(type_) or find_domain(type_) is Domain.DECIMAL


def _is_closed(phrase: Phrase) -> bool:
    """Whether the bracket behind the first token closes with the last one."""
    return phrase.slice(1).bare().tokens != phrase.slice(1).tokens


def _find_domain(type_: str) -> Domain | None:
    domain = find_domain(type_)
    return domain if domain is not None and domain.is_exact else None


def _write_value(phrase: Phrase, type_: str, common: str) -> str:
    if is_integral(common):
        return f"CAST(({phrase.text}) AS BIGINT)"
    return write_key(f"({phrase.text})", type_, common)


def _make_error(nearest: Nearest, why: str) -> QueryError:
    return QueryError("NEAREST", f"{nearest.rule}; {why}")
