"""Each conjunct becomes what the engine can use of it: filters, comparisons of keys, window bounds.

    one stream            -> filter before routing
    f(l) OP g(r)          -> comparison of two key columns in the type Spark compares in
    abs(f - g) <= c       -> a band of key columns
    bounds on event times -> the window
    anything else         -> residual, a filter behind the join

Whatever is used of a conjunct follows from it; if the conjunct says more, it stays as residual too.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from thetastream.condition import Domain
from thetastream.plan.domains import (
    cast,
    decimal_of,
    domain_of,
    family,
    is_day_time,
    is_hashable,
    is_integral,
)
from thetastream.plan.event_time import DAY_US, SLACK_US, column_of, is_local_free, offset_of
from thetastream.plan.query import Constant, Query, Resolver
from thetastream.plan.rewritten import Band, Note, Ordering, Rewritten
from thetastream.plan.side_keys import SideKeys
from thetastream.predicate import Comparison, Phrase, comparisons
from thetastream.predicate.names import references
from thetastream.predicate.split import FLIPPED
from thetastream.types import Side
from thetastream.windows import micros, spell

MAX_DOUBLE_INT = 1 << 24
"""Integers up to here are floats and doubles exactly, so a bound below compares exactly in any type."""


def rewrite(query: Query, resolver: Resolver, keys: tuple[SideKeys, SideKeys] | None = None) -> Rewritten:
    """Sort the conjuncts of a query; keys are added to ``keys``, if there are some already."""
    left, right = query.streams
    keys = keys or (SideKeys(left, resolver), SideKeys(right, resolver))
    work = _Rewriter(query, resolver, Rewritten(keys))
    for number, conjunct in enumerate(query.conjuncts):
        work.conjunct(number, conjunct)
    return work.out


class _Rewriter:
    def __init__(self, query: Query, resolver: Resolver, out: Rewritten) -> None:
        self.query, self.resolver, self.out = query, resolver, out
        self._number = 0
        self._text = ""

    def conjunct(self, number: int, conjunct: Phrase) -> None:
        self._number, self._text = number, conjunct.text
        named = references(conjunct, self.query.aliases)
        if not named:
            self._constant(conjunct)
            return
        alone = self.resolver.type_of(conjunct.text, named) if len(named) == 1 else None
        if alone is not None:
            side = Side(self.query.aliases.index(named[0]))
            self.out.filters[side].append(truth(conjunct.text, alone))
            self._note("filter", f"reads {named[0]} alone, so it runs before routing")
        else:
            self.out.ties = True
            self._two_sided(conjunct)

    def _constant(self, conjunct: Phrase) -> None:
        # AND takes strings for booleans.
        constant = self.resolver.constant(f"CAST(({conjunct.text}) AS BOOLEAN)")
        if constant is not None and constant.value is True:
            self._note("nothing", "always true")
            return
        text = conjunct.text if constant is None else "false"
        for filters in self.out.filters:
            filters.append(text)
        self._note("filter", "reads no stream" if constant is None else "never true: the result is empty")

    def _two_sided(self, conjunct: Phrase) -> None:
        found = comparisons(conjunct)
        if not found:
            self._residual("no single comparison of a left with a right expression")
            return
        reasons = [reason for reason in [self._comparison(comparison) for comparison in found] if reason]
        if reasons:
            self._residual("; ".join(dict.fromkeys(reasons)))

    def _residual(self, why: str) -> None:
        type_ = self.resolver.type_of(self._text, self.query.aliases) or "boolean"
        self.out.residual.append(truth(self._text, type_))
        self._note("residual", why)

    def _note(self, became: str, why: str) -> None:
        self.out.notes.append(Note(self._text, became, why))

    def _comparison(self, comparison: Comparison) -> str | None:
        """Use one comparison; why the conjunct must be compared again behind the join, or None."""
        f, op, g = comparison.f, comparison.op, comparison.g
        named = [references(phrase, self.query.aliases) for phrase in (f, g)]
        if comparison.limit is None and sorted(map(len, named)) == [0, 1]:
            return self._one_sided(comparison, named[0] or named[1])
        if [len(names) for names in named] != [1, 1] or named[0] == named[1]:
            return "not one stream on each side of the operator"
        if named[0][0] == self.query.aliases[1]:
            f, g, op = g, f, op if comparison.limit else FLIPPED[op]
        types = [
            self.resolver.type_of(phrase.text, (alias,))
            for phrase, alias in zip((f, g), self.query.aliases, strict=True)
        ]
        if types[0] is None or types[1] is None:
            return "Catalyst resolves a side only with both streams"
        typed = _Typed(f, types[0], g, types[1], self._common(f, types[0], g, types[1]))
        if comparison.limit is not None:
            return self._band(typed, op, comparison.limit)
        return self._ordered(typed, op)

    def _one_sided(self, comparison: Comparison, named: tuple[str, ...]) -> str | None:
        # The half of a BETWEEN that reads one stream.
        side = Side(self.query.aliases.index(named[0]))
        self.out.filters[side].append(f"({comparison.f.text}) {comparison.op} ({comparison.g.text})")
        self._note("filter", f"one end reads {named[0]} alone, so it runs before routing")
        return None

    def _common(self, f: Phrase, f_type: str, g: Phrase, g_type: str) -> str | None:
        if f_type == g_type:
            return f_type
        if family(f_type) is None or family(f_type) != family(g_type):
            return None
        return self.resolver.type_of(f"coalesce(({f.text}), ({g.text}))", self.query.aliases)

    # f OP g

    def _ordered(self, typed: "_Typed", op: str) -> str | None:
        bounded = self._event_time(typed, op)
        if bounded == "exact" and op != "=":
            return None
        if typed.common is None:
            return f"Spark compares {typed.f_type} with {typed.g_type} by rules of its own"
        if op == "=":
            return self._equal(typed)
        domain = domain_of(typed.common)
        if domain is None:
            return f"keys of type {typed.common} have no order the index knows"
        (left, plus_left), (right, plus_right) = (
            keys.add_with_delta(phrase, type_, typed.common, domain)
            for keys, (phrase, type_) in zip(self.out.keys, typed.phrases, strict=True)
        )
        if not domain.is_exact:
            op = op[0] + "="  # keys that are equal may stand for values that differ
        self.out.orderings.append(Ordering(left, op, right, plus_right - plus_left, self._number, self._text))
        self._note("key", f"compared as {typed.common} ({domain.value} domain)")
        return None if domain.is_exact else f"{domain.value} keys are approximate"

    def _equal(self, typed: "_Typed") -> str | None:
        assert typed.common is not None
        domain = domain_of(typed.common)
        if domain is not None and domain.is_exact:
            left, right = self._add(typed, domain)
            self.out.equalities.append((left, right, self._text))
            self._note("key", f"equal as {typed.common} ({domain.value} domain)")
            return None
        if not is_hashable(typed.common):
            return f"values of type {typed.common} are equal by rules of their own"
        values = [cast(text, type_, typed.common) for text, type_ in typed.sides]
        left, right = (
            # 32 bits, as the key travels and is stored: candidates are compared again anyway.
            keys.add_sql(f"hash({value})", value, Domain.INT)
            for keys, value in zip(self.out.keys, values, strict=True)
        )
        self.out.equalities.append((left, right, self._text))
        columns = self._byte_columns(typed)
        if columns is not None:
            self.out.same.append(columns)
            self._note("key", f"equal by hash of {typed.common}, then byte by byte")
            return None
        self._note("key", f"equal by hash of {typed.common}")
        return "equal hashes are not yet equal values"

    def _byte_columns(self, typed: "_Typed") -> tuple[str, str] | None:
        """The block columns of both sides if values of their type are equal iff their bytes are."""
        if typed.f_type != typed.g_type or typed.common not in ("string", "binary"):
            return None
        left, right = (
            keys.payload_column(phrase)
            for keys, (phrase, _) in zip(self.out.keys, typed.phrases, strict=True)
        )
        return None if left is None or right is None else (left, right)

    def _add(self, typed: "_Typed", domain: Domain) -> tuple[int, int]:
        assert typed.common is not None
        left = self.out.keys[0].add(typed.f, typed.f_type, typed.common, domain)
        return left, self.out.keys[1].add(typed.g, typed.g_type, typed.common, domain)

    # Event time

    def _event_time(self, typed: "_Typed", op: str) -> str | None:
        """Narrow the window by the comparison; "exact" if the window then says all of it."""
        if typed.f_type != typed.g_type:
            return None
        left = offset_of(typed.f, self.query.streams[0], self.resolver)
        right = offset_of(typed.g, self.query.streams[1], self.resolver)
        if left is None or right is None:
            return None
        is_exact = left.is_exact and right.is_exact
        bound, slack = right.us - left.us, 0 if is_exact else SLACK_US
        low = bound + (op == ">") - slack if op in (">", ">=", "=") else None
        high = bound - (op == "<") + slack if op in ("<", "<=", "=") else None
        self._narrow(low, high, is_exact)
        return "exact" if is_exact else None

    def _narrow(self, low: int | None, high: int | None, is_exact: bool) -> None:
        a, b = self.query.aliases
        old_low, old_high = self.out.window
        self.out.window = (
            low if old_low is None else old_low if low is None else max(low, old_low),
            high if old_high is None else old_high if high is None else min(high, old_high),
        )
        ends = [f">= {spell(low)}"] * (low is not None) + [f"<= {spell(high)}"] * (high is not None)
        why = f"{a} - {b} {' and '.join(ends)} in event time"
        self._note("window", why if is_exact else f"{why}, wide enough for any clock change")

    # abs(f - g) <= c

    def _band(self, typed: "_Typed", op: str, limit: Phrase) -> str | None:
        if references(limit, self.query.aliases):
            return "the limit of abs is not a constant"
        constant = self.resolver.constant(limit.text)
        if constant is None or constant.value is None:
            return "the limit of abs has no value the index can use"
        if typed.common is None:
            return f"Spark subtracts {typed.g_type} from {typed.f_type} by rules of its own"
        if family(typed.common) == "numeric":
            return self._numeric_band(typed, op == "<", constant)
        if typed.f_type == typed.g_type and is_day_time(constant.type):
            return self._interval_band(typed, op == "<", micros(constant.value))
        return f"abs over {typed.common} is not indexed"

    def _numeric_band(self, typed: "_Typed", is_strict: bool, constant: Constant) -> str | None:
        common, domain = typed.common, domain_of(typed.common or "")
        assert common is not None
        if family(constant.type) != "numeric" or domain is None or domain is Domain.WIDE_DECIMAL:
            return f"abs over {common} with a limit of type {constant.type} is not indexed"
        if is_integral(common) and not self.resolver.is_ansi:
            # 2147483647 - -2147483648 is -1 there: the far ends of the type are neighbours.
            return f"differences of {common} wrap around outside ANSI mode; BETWEEN is indexed"
        limit = constant.value
        if not math.isfinite(limit) or limit < 0:
            return "the limit of abs is negative or not finite"
        if domain is Domain.FLOAT:
            # A difference is rounded to the nearest float; widen by more than that.
            delta = float(limit) * (1 + 2.0**-22) if common == "float" else float(limit)
            self._add_band(
                typed, domain, math.nextafter(delta + (1e-44 if common == "float" else 0.0), math.inf)
            )
            return "floating-point differences are rounded"
        scale = (decimal_of(common) or (0, 0))[1]
        units = Fraction(limit) * 10**scale
        if constant.type in ("float", "double"):
            if units >= MAX_DOUBLE_INT:
                return f"Spark compares {common} with {constant.type} in floating point"
            if not is_integral(common):
                self._add_band(typed, domain, math.floor(units) + 1)
                return "decimals are compared with the limit in floating point"
        return self._whole_band(typed, domain, units, is_strict)

    def _interval_band(self, typed: "_Typed", is_strict: bool, limit_us: int) -> str | None:
        common = typed.common
        if common == "date":
            difference = self.resolver.type_of(f"({typed.f.text}) - ({typed.g.text})", self.query.aliases)
            if difference is None or not is_day_time(difference):
                return "dates subtract to something other than an interval"
            return self._whole_band(typed, Domain.INT, Fraction(limit_us, DAY_US), is_strict)
        if common == "timestamp":
            return self._timestamp_band(typed, is_strict, limit_us)
        if common == "timestamp_ntz" or is_day_time(common or ""):
            if common == "timestamp_ntz" and self._is_event_time(typed) and limit_us >= is_strict:
                self._narrow(is_strict - limit_us, limit_us - is_strict, True)
                return None
            return self._whole_band(typed, Domain.INT, Fraction(limit_us), is_strict)
        return f"abs over {common} is not indexed"

    def _timestamp_band(self, typed: "_Typed", is_strict: bool, limit_us: int) -> str | None:
        # Spark subtracts timestamps as local times, so the keys are local times.
        delta = limit_us - is_strict
        if delta < 0:
            return "the limit of abs is never met"
        if self._is_event_time(typed):
            is_exact = is_local_free(self.query.streams[0], self.resolver)
            slack = 0 if is_exact else SLACK_US
            self._narrow(-delta - slack, delta + slack, is_exact)
            if is_exact:
                return None
        left, right = (
            keys.add_sql(f"CAST(({text}) AS TIMESTAMP_NTZ)", text, Domain.INT)
            for keys, (text, _) in zip(self.out.keys, typed.sides, strict=True)
        )
        self.out.bands.append(Band(left, right, delta, self._text))
        self._note("key", f"a band of {spell(delta)} in local time")
        return None

    def _is_event_time(self, typed: "_Typed") -> bool:
        columns = [
            column_of(phrase, stream, self.resolver.is_case_sensitive) == stream.event_time is not None
            for phrase, stream in zip((typed.f, typed.g), self.query.streams, strict=True)
        ]
        return all(columns)

    def _whole_band(self, typed: "_Typed", domain: Domain, units: Fraction, is_strict: bool) -> str | None:
        whole = math.floor(units)
        if is_strict and whole == units:
            whole -= 1
        if whole < 0:
            return "the limit of abs is never met"
        self._add_band(typed, domain, whole)
        return None

    def _add_band(self, typed: "_Typed", domain: Domain, delta: int | float) -> None:
        left, right = self._add(typed, domain)
        self.out.bands.append(Band(left, right, delta, self._text))
        self._note("key", f"a band of {delta} as {typed.common} ({domain.value} domain)")


def truth(text: str, type_: str) -> str:
    """A conjunct as a filter: AND takes strings for booleans, a filter of its own does not."""
    return text if type_ == "boolean" else f"CAST(({text}) AS BOOLEAN)"


@dataclass(frozen=True)
class _Typed:
    """Two one-sided expressions, left and right, and the type Spark combines them in."""

    f: Phrase
    f_type: str
    g: Phrase
    g_type: str
    common: str | None

    @property
    def phrases(self) -> tuple[tuple[Phrase, str], tuple[Phrase, str]]:
        return (self.f, self.f_type), (self.g, self.g_type)

    @property
    def sides(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.f.text, self.f_type), (self.g.text, self.g_type)
