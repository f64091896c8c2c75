"""Reads how an expression follows event times, so that a comparison of such expressions bounds the state.

    unit * e  lies in  s_left * l.ts + s_right * r.ts + [low, high]        (microseconds)

    l.ts                       (1, 0) + [0, 0]              a time
    l.ts + INTERVAL 1 SECOND   (1, 0) + [1e6, 1e6]          a time
    unix_seconds(l.ts)         (1, 0) + [-999999, 0]        a number of seconds, which are cut
    r.ts - l.ts                (-1, 1) + [0, 0]             an interval
    timestampdiff(HOUR, x, y)  y - x + (-1 hour, 1 hour)    a number of hours, which are cut

A difference of event times is elapsed time. Spark adds days and cuts to days in local time. If a local day
may have 23 or 25 hours, such a term is local, and its bounds are true only with ``SLACK_US``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from thetastream.conditions import Phrase
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import find_last_additive, find_last_product
from thetastream.conditions.tokens import read_call, read_cast
from thetastream.core.spans import LONGEST_US, to_micros
from thetastream.core.spark_types import is_day_time, is_integral, parse_decimal
from thetastream.lowering.event_time import DAY_US, find_column
from thetastream.lowering.query import Resolver, Stream

ROUNDED_US = 10_000
"""More than the error of a few roundings of any event time to double precision."""

_CUTS_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": DAY_US,
    "WEEK": 7 * DAY_US,
}
"""Units of a fixed length, in microseconds."""
_TRUNCATED_US = {
    **_CUTS_US,
    **dict.fromkeys(("MONTH", "MON", "MM"), 31 * DAY_US),
    "DD": DAY_US,
    "QUARTER": 92 * DAY_US,
    **dict.fromkeys(("YEAR", "YYYY", "YY"), 366 * DAY_US),
}
"""The longest length of the units of ``date_trunc``."""
_NUMBERS_OF = {
    "UNIX_MICROS": 1,
    "UNIX_MILLIS": 1_000,
    **dict.fromkeys(("UNIX_SECONDS", "UNIX_TIMESTAMP", "TO_UNIX_TIMESTAMP"), 1_000_000),
}
_ROUNDS_TO_ZERO = {"UNIX_TIMESTAMP", "TO_UNIX_TIMESTAMP"}
"""Functions that round times before 1970 up, to the second that is nearer to 1970."""
_TIMES_OF = {"TIMESTAMP_MICROS": 1, "TIMESTAMP_MILLIS": 1_000, "TIMESTAMP_SECONDS": 1_000_000}
_DIFFERENCES = {"TIMESTAMPDIFF", "DATEDIFF", "DATE_DIFF"}
_SUMS = {"TIMESTAMPADD", "DATEADD", "DATE_ADD"}


@dataclass(frozen=True)
class Term:
    """``unit * e`` lies in ``signs[0] * l.ts + signs[1] * r.ts + [low, high]``, in microseconds.

    >>> Term((1, 0), -999_999, 0, Fraction(1_000_000)).is_exact  # unix_seconds(l.ts)
    False
    """

    signs: tuple[int, int]
    low: int
    high: int
    unit: Fraction | None = None
    """Microseconds that the number 1 stands for. It is None for times and intervals."""
    is_local: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the expression follows the event times to the microsecond."""
        return self.low == self.high and not self.is_local

    @property
    def is_time(self) -> bool:
        """Whether the expression is a time. A difference of two times is an interval."""
        return self.unit is None and sum(self.signs) == 1

    def negate(self) -> "Term":
        """Return the term of ``-e``."""
        return replace(self, signs=(-self.signs[0], -self.signs[1]), low=-self.high, high=-self.low)

    def widen(self, low: int, high: int) -> "Term":
        """Move both bounds."""
        return replace(self, low=self.low + low, high=self.high + high)

    def plus(self, other: "Term") -> "Term":
        """Return the term of ``e + f``."""
        signs = (self.signs[0] + other.signs[0], self.signs[1] + other.signs[1])
        is_local = self.is_local or other.is_local
        return Term(signs, self.low + other.low, self.high + other.high, self.unit, is_local)


@dataclass(frozen=True)
class TermReader:
    """Reads expressions over the event times of two streams."""

    streams: Sequence[Stream]
    resolver: Resolver

    @property
    def _aliases(self) -> list[str]:
        return [stream.alias for stream in self.streams]

    @property
    def _type(self) -> str | None:
        """The type of the event times; None if a stream has none, or they differ."""
        types = {s.type_of(s.event_time) if s.event_time is not None else None for s in self.streams}
        return types.pop() if len(types) == 1 else None

    @property
    def _is_local_free(self) -> bool:
        return self.resolver.zone_is_fixed or self._type == "timestamp_ntz"

    def read(self, phrase: Phrase) -> Term | None:
        """Read an expression that follows event times. Return None if it has another form."""
        phrase = phrase.bare()
        if not phrase or self._type not in ("timestamp", "timestamp_ntz"):
            return None
        if not find_references(phrase, self._aliases):
            return None
        for number, stream in enumerate(self.streams):
            if find_column(phrase, stream, self.resolver.is_case_sensitive) == stream.event_time:
                return Term((1 - number, number), 0, 0)
        sign = find_last_additive(phrase)
        if sign is not None:
            is_minus = phrase.tokens[sign].kind == "DASH"
            return self._read_sum(phrase.slice(0, sign), phrase.slice(sign + 1), is_minus)
        product = find_last_product(phrase)
        if product is not None:
            operator = phrase.tokens[product].kind
            return self._read_product(phrase.slice(0, product), operator, phrase.slice(product + 1))
        cast = read_cast(phrase)
        if cast is not None:
            return self._read_cast(phrase, *cast)
        call = read_call(phrase)
        return None if call is None else self._read_call(*call)

    def subtract(self, f: Phrase, g: Phrase) -> Term | None:
        """Read the expression ``f - g``. Signs are (1, -1) or (-1, 1), or the result is None."""
        found = self._read_sum(f, g, is_minus=True)
        return found if found is not None and sorted(found.signs) == [-1, 1] else None

    def compare(self, f: Phrase, g: Phrase) -> Term | None:
        """Read ``f - g`` for a comparison of f with g, with signs (1, -1) or (-1, 1)."""
        left, right = self.read(f), self.read(g)
        if left is not None and right is not None:
            found = self._subtract(left, right)
        elif left is not None:
            found = self._add_constant(left, g, True)
        elif right is not None:
            found = self._add_constant(right, f, True)
            found = None if found is None else found.negate()
        else:
            return None
        return found if found is not None and sorted(found.signs) == [-1, 1] else None

    # Sums

    def _read_sum(self, before: Phrase, after: Phrase, is_minus: bool) -> Term | None:
        left, right = self.read(before), self.read(after)
        if left is not None and right is None and not find_references(after, self._aliases):
            return self._add_constant(left, after, is_minus)
        if right is not None and left is None and not find_references(before, self._aliases):
            return self._add_constant(right.negate() if is_minus else right, before, False)
        if left is None:
            return None
        if is_minus and (cut := self._read_remainder(after)) is not None and left.unit is not None:
            return left.widen(*(math.floor(end * left.unit) for end in cut))
        if right is None:
            return None
        if is_minus:
            return self._subtract(left, right)
        return left.plus(right) if left.unit == right.unit else None

    def _subtract(self, left: Term, right: Term) -> Term | None:
        if left.unit != right.unit or left.is_time != right.is_time:
            return None
        return left.plus(right.negate())

    def _add_constant(self, term: Term, phrase: Phrase, is_minus: bool) -> Term | None:
        if term.unit is None:
            added = read_interval_us(phrase, self.resolver)
            if added is None:
                return None
            adds_days = term.is_time and abs(added) >= DAY_US and not self._is_local_free
            added = -added if is_minus else added
            return replace(term.widen(added, added), is_local=term.is_local or adds_days)
        number = self._read_exact_number(phrase)
        if number is None:
            return None
        exact = number * term.unit * (-1 if is_minus else 1)
        return term.widen(math.floor(exact), math.ceil(exact))

    def read_number(self, phrase: Phrase) -> Fraction | None:
        """Return the value of a constant number, or None if it is something else."""
        if find_references(phrase, self._aliases):
            return None
        constant = self.resolver.constant(phrase.text)
        if constant is None or constant.value is None or isinstance(constant.value, bool):
            return None
        if constant.type == "float":
            # Outside ANSI mode, Spark adds and compares numbers with a FLOAT in its 24 bits.
            return None
        if not (is_integral(constant.type) or constant.type == "double" or parse_decimal(constant.type)):
            return None
        if not math.isfinite(constant.value):
            return None
        number = Fraction(constant.value)
        return number if abs(number) <= LONGEST_US else None

    def _read_exact_number(self, phrase: Phrase) -> Fraction | None:
        """Return the value of a constant with which Spark computes exactly, or None.

        A sum with a DOUBLE is a DOUBLE. It rounds times before 1684 and after 2255, beyond 2^53 microseconds.
        """
        constant = self.resolver.constant(phrase.text)
        is_rounded = constant is not None and constant.type == "double"
        return None if is_rounded else self.read_number(phrase)

    def _read_remainder(self, phrase: Phrase) -> tuple[Fraction, Fraction] | None:
        """Return the negated ends of ``pmod(x, c)`` and ``x % c``, whatever x is."""
        call, product = read_call(phrase.bare()), find_last_product(phrase.bare())
        if call is not None and call[0] == "PMOD" and len(call[1]) == 2:
            number = self._read_exact_number(call[1][1])
            if number is None or number <= 0:
                return None
            is_whole = number.denominator == 1 and self._is_whole(call[1][0])
            return (1 - number if is_whole else -number, Fraction(0))
        if product is not None and phrase.bare().tokens[product].kind == "MOD":
            number = self._read_exact_number(phrase.bare().slice(product + 1))
            return None if number is None or number == 0 else (-abs(number), abs(number))
        return None

    # Products

    def _read_product(self, before: Phrase, operator: str, after: Phrase) -> Term | None:
        if operator == "STAR" and not find_references(before, self._aliases):
            before, after = after, before
        term, factor = self.read(before), self.read_number(after)
        if term is None or term.unit is None or factor is None or factor <= 0:
            return None
        if operator not in ("STAR", "SLASH", "DIV"):
            return None
        if operator == "STAR" and not self.resolver.is_ansi:
            return None  # outside ANSI mode, products of integers wrap around
        unit = term.unit / factor if operator == "STAR" else term.unit * factor
        # DIV cuts towards zero. A quotient of decimals has six decimal places or more.
        size = math.ceil(unit if operator == "DIV" else unit / 100_000) + ROUNDED_US
        return replace(term, unit=unit).widen(-size, size)

    # Calls

    def _read_cast(self, whole: Phrase, value: Phrase, type_: str) -> Term | None:
        term = self.read(value)
        if term is None:
            return None
        given = self.resolver.type_of(whole.text, self._aliases) or type_
        if term.unit is None and term.is_time:
            return self._cast_time(term, given)
        if term.unit is not None and given == "timestamp" and self._type == "timestamp":
            return replace(term, unit=None).widen(-1, 1) if term.unit == 1_000_000 else None
        if term.unit is not None and (given in ("bigint", "double") or parse_decimal(given)):
            size = math.ceil(term.unit) + ROUNDED_US
            return term if given == "bigint" and self._is_whole(value) else term.widen(-size, size)
        return None

    def _is_whole(self, value: Phrase) -> bool:
        return is_integral(self.resolver.type_of(value.text, self._aliases) or "")

    def _cast_time(self, term: Term, given: str) -> Term | None:
        if given == self._type:
            return term
        if given == "date":
            return replace(term, low=term.low - DAY_US, is_local=term.is_local or not self._is_local_free)
        if self._type != "timestamp":
            return None
        if given == "bigint":
            return replace(term, low=term.low - 999_999, unit=Fraction(1_000_000))
        if given == "double" or parse_decimal(given):
            size = ROUNDED_US if given == "double" else 10 ** max(0, 6 - (parse_decimal(given) or (0, 0))[1])
            return replace(term, low=term.low - size, high=term.high + size, unit=Fraction(1_000_000))
        return None

    def _read_call(self, name: str, arguments: Sequence[Phrase]) -> Term | None:
        if name in _DIFFERENCES:
            return self._read_difference(arguments)
        if name in _SUMS and len(arguments) == 3:
            return self._read_added(*arguments)
        if name == "DATE_TRUNC" and len(arguments) == 2:
            return self._read_truncated(*arguments)
        if len(arguments) != 1:
            return None
        term = self.read(arguments[0])
        if term is None:
            return None
        if name in _NUMBERS_OF and term.is_time and self._type == "timestamp":
            size = _NUMBERS_OF[name]
            cut = size - 1
            return replace(term.widen(-cut, cut if name in _ROUNDS_TO_ZERO else 0), unit=Fraction(size))
        if name in _TIMES_OF and term.unit == _TIMES_OF[name] and self._type == "timestamp":
            return replace(term, unit=None)
        if name in ("FLOOR", "CEIL", "CEILING") and term.unit is not None:
            size = math.ceil(term.unit)
            return term.widen(-size, 0) if name == "FLOOR" else term.widen(0, size)
        if name in ("DATE", "TO_DATE") and term.is_time:
            return self._cast_time(term, "date")
        return None

    def _read_difference(self, arguments: Sequence[Phrase]) -> Term | None:
        """Read ``timestampdiff(unit, x, y)``, which is cut towards zero, or ``datediff(y, x)``."""
        if len(arguments) == 2:
            terms = [self.read(argument) for argument in arguments]
            ends = [None if t is None or not t.is_time else self._cast_time(t, "date") for t in terms]
            end, start, size, cut = ends[0], ends[1], DAY_US, 0
        elif len(arguments) == 3 and arguments[0].text.upper() in _CUTS_US:
            start, end = self.read(arguments[1]), self.read(arguments[2])
            size = _CUTS_US[arguments[0].text.upper()]
            cut = size - 1
        else:
            return None
        if end is None or start is None or not (end.is_time and start.is_time):
            return None
        found = end.plus(start.negate()).widen(-cut, cut)
        # Spark casts a TIMESTAMP_NTZ to TIMESTAMP in the time zone of the session, or each of two to DATE.
        is_free = self._is_local_free if len(arguments) == 2 else self.resolver.zone_is_fixed
        return replace(found, unit=Fraction(size), is_local=found.is_local or not is_free)

    def _read_added(self, unit: Phrase, number: Phrase, value: Phrase) -> Term | None:
        """Read ``timestampadd(unit, number, x)``."""
        size, count, term = _CUTS_US.get(unit.text.upper()), self.read_number(number), self.read(value)
        if size is None or count is None or count.denominator != 1 or term is None or not term.is_time:
            return None
        added = size * int(count)
        is_local = term.is_local or (size >= DAY_US and not self._is_local_free)
        return replace(term.widen(added, added), is_local=is_local)

    def _read_truncated(self, unit: Phrase, value: Phrase) -> Term | None:
        """Read ``date_trunc('unit', x)``."""
        term, constant = self.read(value), self.resolver.constant(unit.text)
        if term is None or not term.is_time or constant is None:
            return None
        size = _TRUNCATED_US.get(str(constant.value).upper())
        if size is None:
            return None
        # Spark casts a TIMESTAMP_NTZ to TIMESTAMP, in the time zone of the session, and cuts that.
        is_cast = self._type == "timestamp_ntz"
        # Clocks once skipped spans that are no whole number of minutes, as Monrovia's did in 1972.
        is_local = (is_cast or size >= _CUTS_US["MINUTE"]) and not self.resolver.zone_is_fixed
        return replace(term, low=term.low - size + 1, is_local=term.is_local or is_local)


def read_limit_us(phrase: Phrase, term: Term, reader: TermReader) -> tuple[int, int] | None:
    """Read a constant with which the expression of a term is compared, in microseconds: floor and ceiling."""
    if term.unit is None:
        micros = read_interval_us(phrase, reader.resolver)
        return None if micros is None else (micros, micros)
    number = reader.read_number(phrase)
    return None if number is None else (math.floor(number * term.unit), math.ceil(number * term.unit))


def read_interval_us(phrase: Phrase, resolver: Resolver) -> int | None:
    """Return the microseconds of a constant day-time interval, or None if it is something else.

    A bound of more than 10,000 years is not used as a window. Catalyst evaluates it as it evaluates any other
    expression.
    """
    constant = resolver.constant(phrase.text)
    if constant is None or constant.value is None or not is_day_time(constant.type):
        return None
    micros = to_micros(constant.value)
    return micros if abs(micros) <= LONGEST_US else None
