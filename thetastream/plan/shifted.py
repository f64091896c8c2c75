"""A column plus a constant: a key that the unit computes itself, so that it need not travel.

NumPy adds as Spark does: doubles by IEEE 754, integers exactly. Integers are columns of at most 32 bits
plus a constant of at most 60, so that 64 bits hold every sum and difference of sums. Where Spark in ANSI
mode raises, because the sum leaves its own type, the number is compared as it is: one outlier must not
stop a stream for good, and Spark's own join does not even compute a sum that it need not look at.
"""

from dataclasses import dataclass

from thetastream.plan.domains import family, is_floating, is_integral
from thetastream.plan.event_time import column_of
from thetastream.plan.query import Resolver, Stream
from thetastream.predicate import Phrase
from thetastream.predicate.names import references
from thetastream.predicate.split import last_additive

_NARROW = {"tinyint", "smallint", "int"}
_MOST = 1 << 60


@dataclass(frozen=True)
class Shifted:
    """``column + by``."""

    column: str
    by: int | float


def shifted_column(phrase: Phrase, type_: str, stream: Stream, resolver: Resolver) -> Shifted | None:
    """``phrase``, of Spark type ``type_``, as a column of ``stream`` plus a number, or None."""
    phrase = phrase.bare()
    sign = last_additive(phrase)
    if sign is None:
        return None
    operands = phrase.slice(0, sign), phrase.slice(sign + 1)
    is_minus = phrase.tokens[sign].kind == "DASH"
    if not is_minus and references(operands[1], [stream.alias]):
        operands = operands[::-1]
    column = column_of(operands[0], stream, resolver.is_case_sensitive)
    if column is None or references(operands[1], [stream.alias]):
        return None
    constant = resolver.constant(operands[1].text)
    if constant is None or constant.value is None or family(constant.type) != "numeric":
        return None
    column_type = stream.type_of(column)
    if type_ == "double" and (is_integral(column_type) or is_floating(column_type)):
        by: int | float = float(constant.value)
    elif resolver.is_ansi and is_integral(type_) and is_integral(constant.type) and column_type in _NARROW:
        by = int(constant.value)
        if abs(by) > _MOST:
            return None
    else:
        return None
    return Shifted(column, -by if is_minus else by)
