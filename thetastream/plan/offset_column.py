"""Reads a key that is a column plus a constant. The unit computes such a key itself, so it is not sent.

NumPy adds as Spark does: doubles by IEEE 754, integers exactly. Integer columns have at most 32 bits and
constants at most 60, so 64 bits hold every sum and every difference of sums. If a sum leaves its type, Spark
raises an error in ANSI mode. Here, the exact sum is compared instead, because one outlier must not stop a
stream for good. Spark's own join does not compute sums that it does not need either.
"""

from dataclasses import dataclass

from thetastream.core.spark_types import is_floating, is_integral
from thetastream.plan.domains import find_family
from thetastream.plan.event_time import find_column
from thetastream.plan.query import Resolver, Stream
from thetastream.predicate import Phrase
from thetastream.predicate.names import find_references
from thetastream.predicate.split import find_last_additive

_NARROW = {"tinyint", "smallint", "int"}
_MOST = 1 << 60


@dataclass(frozen=True)
class OffsetColumn:
    """The key ``column + by``."""

    column: str
    by: int | float


def read_offset_column(phrase: Phrase, type_: str, stream: Stream, resolver: Resolver) -> OffsetColumn | None:
    """Read ``phrase`` as a column of ``stream`` plus a number. Return None if it has another form.

    ``type_`` is the Spark type of ``phrase``.
    """
    phrase = phrase.bare()
    sign = find_last_additive(phrase)
    if sign is None:
        return None
    operands = phrase.slice(0, sign), phrase.slice(sign + 1)
    is_minus = phrase.tokens[sign].kind == "DASH"
    if not is_minus and find_references(operands[1], [stream.alias]):
        operands = operands[::-1]
    column = find_column(operands[0], stream, resolver.is_case_sensitive)
    if column is None or find_references(operands[1], [stream.alias]):
        return None
    constant = resolver.constant(operands[1].text)
    if constant is None or constant.value is None or find_family(constant.type) != "numeric":
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
    return OffsetColumn(column, -by if is_minus else by)
