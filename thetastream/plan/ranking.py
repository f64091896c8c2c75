"""Reads ``by=`` of ``th.Nearest``: which columns Catalyst computes, and how units combine them.

abs(f - g), f - g, g - f, f, g        where f reads the left stream only, and g the right one
"""

from dataclasses import dataclass

from thetastream.core.condition import Domain
from thetastream.core.how import Nearest
from thetastream.core.ranking import Ranking
from thetastream.core.spark_types import is_integral
from thetastream.errors import QueryError
from thetastream.plan.domains import find_domain, write_key
from thetastream.plan.query import Query, Resolver
from thetastream.predicate import Phrase, parse
from thetastream.predicate.names import find_references
from thetastream.predicate.respelled_names import quote_names
from thetastream.predicate.split import find_last_additive


@dataclass(frozen=True)
class LoweredRanking:
    """The ranking of pairs, and the SQL of the value of each side; None if a side has no value."""

    ranking: Ranking
    texts: tuple[str | None, str | None]


def lower_ranking(nearest: Nearest, query: Query, resolver: Resolver) -> LoweredRanking:
    """Read ``by=``.

    Raises
    ------
    QueryError
        NEAREST if the expression has another form, or a type that units cannot rank.
    """
    phrase = quote_names(parse(nearest.by)).bare()
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
        ranking = Ranking(nearest.k, domain, side == 0, side == 1, is_single=type_ == "float")
        return LoweredRanking(ranking, (text, None) if side == 0 else (None, text))
    sign = find_last_additive(inner)
    if len(named) != 2 or sign is None or inner.tokens[sign].kind != "DASH":
        raise _make_error(nearest, "it has another form")
    parts = [inner.slice(0, sign), inner.slice(sign + 1)]
    owners = [find_references(part, query.aliases) for part in parts]
    if [len(owner) for owner in owners] != [1, 1] or owners[0] == owners[1]:
        raise _make_error(nearest, "the operands of the difference read other streams")
    types = [resolver.type_of(part.text, owner) for part, owner in zip(parts, owners, strict=True)]
    if types[0] is None or types[1] is None:
        raise _make_error(nearest, "Spark does not know a column or a function in it")
    common = types[0]
    if types[0] != types[1]:
        common = resolver.type_of(f"coalesce(({parts[0].text}), ({parts[1].text}))", query.aliases) or ""
    domain = _find_domain(common)
    if domain is None or resolver.type_of(inner.text, query.aliases) is None:
        raise _make_error(nearest, f"its operands are {types[0]} and {types[1]}")
    is_flipped = owners[0][0] == query.aliases[1]
    texts = [_write_value(part, type_ or "", common) for part, type_ in zip(parts, types, strict=True)]
    if is_flipped:
        texts.reverse()
    ranking = Ranking(nearest.k, domain, True, True, is_flipped, is_abs, common == "float")
    return LoweredRanking(ranking, (texts[0], texts[1]))


def _is_closed(phrase: Phrase) -> bool:
    """Whether the bracket behind the first token closes with the last one."""
    return phrase.slice(1).bare().tokens != phrase.slice(1).tokens


def _find_domain(type_: str) -> Domain | None:
    domain = find_domain(type_)
    return domain if domain is not None and domain.is_exact else None


def _write_value(phrase: Phrase, type_: str, common: str) -> str:
    if common == "timestamp":
        # Spark subtracts timestamps as local times.
        return f"CAST(({phrase.text}) AS TIMESTAMP_NTZ)"
    if is_integral(common):
        return f"CAST(({phrase.text}) AS BIGINT)"
    return write_key(f"({phrase.text})", type_, common)


def _make_error(nearest: Nearest, why: str) -> QueryError:
    return QueryError(
        "NEAREST",
        f"by={nearest.by!r} must be abs(f - g), f - g, or an expression over one stream, of numbers or "
        f"times; {why}; write each column with its alias",
    )
