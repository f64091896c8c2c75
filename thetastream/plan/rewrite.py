"""Rewrites each conjunct into a form that the engine can use: filters, comparisons of keys, window bounds.

    one stream            -> filter before routing
    f(l) OP g(r)          -> comparison of two key columns in the type in which Spark compares
    abs(f - g) <= c       -> a band of key columns
    bounds on event times -> the window
    anything else         -> residual, a filter behind the join

Each form that is used follows logically from the conjunct. If the conjunct requires more, it also stays as a
residual.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from thetastream.core.condition import Domain
from thetastream.core.exact import ExactBand, ExactOrder
from thetastream.core.sides import Side
from thetastream.core.spark_types import is_day_time, is_integral, parse_decimal
from thetastream.core.windows import LONGEST_US, spell, to_micros
from thetastream.plan.domains import find_domain, find_family, is_hashable, write_cast
from thetastream.plan.event_time import DAY_US, SLACK_US, find_column, is_local_free, read_offset
from thetastream.plan.query import Constant, Query, Resolver
from thetastream.plan.rewritten_condition import Band, Check, Note, Ordering, Rewritten
from thetastream.plan.side_keys import SideKeys
from thetastream.predicate import Comparison, Phrase, split_comparisons
from thetastream.predicate.names import find_references
from thetastream.predicate.split import FLIPPED

MAX_DOUBLE_INT = 1 << 24
"""Float and double represent integers up to here exactly, so smaller bounds compare exactly in any type."""


def rewrite(query: Query, resolver: Resolver, keys: tuple[SideKeys, SideKeys] | None = None) -> Rewritten:
    """Rewrite the conjuncts of a query. Their keys are added to ``keys`` if it is given."""
    left, right = query.streams
    keys = keys or (SideKeys(left, resolver), SideKeys(right, resolver))
    work = _Rewriter(query, resolver, Rewritten(keys))
    for number, conjunct in enumerate(query.conjuncts):
        work.rewrite_conjunct(number, conjunct)
    return work.out


class _Rewriter:
    def __init__(self, query: Query, resolver: Resolver, out: Rewritten) -> None:
        self.query, self.resolver, self.out = query, resolver, out
        self._number = 0
        self._text = ""

    def rewrite_conjunct(self, number: int, conjunct: Phrase) -> None:
        self._number, self._text = number, conjunct.text
        named = find_references(conjunct, self.query.aliases)
        if not named:
            self._rewrite_constant(conjunct)
            return
        alone = self.resolver.type_of(conjunct.text, named) if len(named) == 1 else None
        if alone is not None:
            side = Side(self.query.aliases.index(named[0]))
            self.out.filters[side].append(cast_to_boolean(conjunct.text, alone))
            self._add_note("filter", f"reads {named[0]} alone, so it runs before routing")
        else:
            self.out.ties = True
            self._rewrite_two_sided(conjunct)

    def _rewrite_constant(self, conjunct: Phrase) -> None:
        # AND accepts strings as booleans.
        constant = self.resolver.constant(f"CAST(({conjunct.text}) AS BOOLEAN)")
        if constant is not None and constant.value is True:
            self._add_note("nothing", "always true")
            return
        text = conjunct.text if constant is None else "false"
        for filters in self.out.filters:
            filters.append(text)
        self._add_note("filter", "reads no stream" if constant is None else "never true: the result is empty")

    def _rewrite_two_sided(self, conjunct: Phrase) -> None:
        found = split_comparisons(conjunct)
        if not found:
            self._keep_residual("no single comparison of a left with a right expression")
            return
        reasons = [
            reason for reason in [self._rewrite_comparison(comparison) for comparison in found] if reason
        ]
        if reasons:
            self._keep_residual("; ".join(dict.fromkeys(reasons)))

    def _keep_residual(self, why: str) -> None:
        type_ = self.resolver.type_of(self._text, self.query.aliases) or "boolean"
        self.out.residual.append(cast_to_boolean(self._text, type_))
        self._add_note("residual", why)

    def _add_note(self, became: str, why: str) -> None:
        self.out.notes.append(Note(self._text, became, why))

    def _rewrite_comparison(self, comparison: Comparison) -> str | None:
        """Use one comparison.

        Return None, or the reason why the conjunct must be evaluated again behind the join.
        """
        f, op, g = comparison.f, comparison.op, comparison.g
        named = [find_references(phrase, self.query.aliases) for phrase in (f, g)]
        if comparison.limit is None and sorted(map(len, named)) == [0, 1]:
            return self._rewrite_one_sided(comparison, named[0] or named[1])
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
        typed = _TypedPair(f, types[0], g, types[1], self._find_common_type(f, types[0], g, types[1]))
        if comparison.limit is not None:
            return self._rewrite_band(typed, op, comparison.limit)
        return self._rewrite_ordering(typed, op)

    def _rewrite_one_sided(self, comparison: Comparison, named: tuple[str, ...]) -> str | None:
        # This is the half of a BETWEEN that reads one stream.
        side = Side(self.query.aliases.index(named[0]))
        self.out.filters[side].append(f"({comparison.f.text}) {comparison.op} ({comparison.g.text})")
        self._add_note("filter", f"one end reads {named[0]} alone, so it runs before routing")
        return None

    def _find_common_type(self, f: Phrase, f_type: str, g: Phrase, g_type: str) -> str | None:
        if f_type == g_type:
            return f_type
        if find_family(f_type) is None or find_family(f_type) != find_family(g_type):
            return None
        return self.resolver.type_of(f"coalesce(({f.text}), ({g.text}))", self.query.aliases)

    # f OP g

    def _rewrite_ordering(self, typed: "_TypedPair", op: str) -> str | None:
        bounded = self._rewrite_event_time(typed, op)
        if bounded == "exact" and op != "=":
            return None
        if typed.common is None:
            return f"Spark compares {typed.f_type} with {typed.g_type} by rules of its own"
        if op == "=":
            return self._rewrite_equality(typed)
        domain = find_domain(typed.common)
        if domain is None:
            return f"keys of type {typed.common} have no order the index knows"
        (left, plus_left), (right, plus_right) = (
            keys.add_with_delta(phrase, type_, typed.common, domain)
            for keys, (phrase, type_) in zip(self.out.keys, typed.phrases, strict=True)
        )
        exact = op
        if not domain.is_exact:
            op = op[0] + "="  # different values may have equal keys
        self.out.orderings.append(Ordering(left, op, right, plus_right - plus_left, self._number, self._text))
        self._add_note("key", f"compared as {typed.common} ({domain.value} domain)")
        if domain.is_exact or (
            plus_left == plus_right == 0 and self._add_check(left, right, ExactOrder(exact))
        ):
            return None
        return f"{domain.value} keys are approximate"

    def _rewrite_equality(self, typed: "_TypedPair") -> str | None:
        assert typed.common is not None
        domain = find_domain(typed.common)
        if domain is not None and domain.is_exact:
            left, right = self._add_keys(typed, domain)
            self.out.equalities.append((left, right, self._text))
            self._add_note("key", f"equal as {typed.common} ({domain.value} domain)")
            return None
        if not is_hashable(typed.common):
            return f"values of type {typed.common} are equal by rules of their own"
        values = [write_cast(text, type_, typed.common) for text, type_ in typed.sides]
        left, right = (
            # A hash of 32 bits is enough, and it is small to send and store. Candidates are compared again.
            keys.add_sql(f"hash({value})", value, Domain.INT)
            for keys, value in zip(self.out.keys, values, strict=True)
        )
        self.out.equalities.append((left, right, self._text))
        columns = self._find_byte_columns(typed)
        if columns is not None:
            self.out.same.append(columns)
            self._add_note("key", f"equal by hash of {typed.common}, then byte by byte")
            return None
        self._add_note("key", f"equal by hash of {typed.common}")
        if domain is not None and not self.query.how.is_inner:
            # Semi and anti joins send no payload of the other stream, so the values travel as keys.
            left, right = self._add_keys(typed, domain)
            if self._add_check(left, right, ExactOrder("=")):
                return None
        return "equal hashes are not yet equal values"

    def _find_byte_columns(self, typed: "_TypedPair") -> tuple[str, str] | None:
        """Return the block columns of both sides, or None if equal values may have different bytes."""
        if typed.f_type != typed.g_type or typed.common not in ("string", "binary"):
            return None
        left, right = (
            keys.find_payload_column(phrase)
            for keys, (phrase, _) in zip(self.out.keys, typed.phrases, strict=True)
        )
        return None if left is None or right is None else (left, right)

    def _add_keys(self, typed: "_TypedPair", domain: Domain) -> tuple[int, int]:
        assert typed.common is not None
        left = self.out.keys[0].add(typed.f, typed.f_type, typed.common, domain)
        return left, self.out.keys[1].add(typed.g, typed.g_type, typed.common, domain)

    # Event time

    def _rewrite_event_time(self, typed: "_TypedPair", op: str) -> str | None:
        """Narrow the window by the comparison.

        Return "exact" if the window implies the comparison, else None.
        """
        if typed.f_type != typed.g_type:
            return None
        left = read_offset(typed.f, self.query.streams[0], self.resolver)
        right = read_offset(typed.g, self.query.streams[1], self.resolver)
        if left is None or right is None:
            return None
        is_exact = left.is_exact and right.is_exact
        bound, slack = right.us - left.us, 0 if is_exact else SLACK_US
        low = bound + (op == ">") - slack if op in (">", ">=", "=") else None
        high = bound - (op == "<") + slack if op in ("<", "<=", "=") else None
        self._narrow_window(low, high, is_exact)
        return "exact" if is_exact else None

    def _narrow_window(self, low: int | None, high: int | None, is_exact: bool) -> None:
        a, b = self.query.aliases
        old_low, old_high = self.out.window
        self.out.window = (
            low if old_low is None else old_low if low is None else max(low, old_low),
            high if old_high is None else old_high if high is None else min(high, old_high),
        )
        ends = [f">= {spell(low)}"] * (low is not None) + [f"<= {spell(high)}"] * (high is not None)
        why = f"{a} - {b} {' and '.join(ends)} in event time"
        self._add_note("window", why if is_exact else f"{why}, wide enough for any clock change")

    # abs(f - g) <= c

    def _rewrite_band(self, typed: "_TypedPair", op: str, limit: Phrase) -> str | None:
        if find_references(limit, self.query.aliases):
            return "the limit of abs is not a constant"
        constant = self.resolver.constant(limit.text)
        if constant is None or constant.value is None:
            return "the limit of abs has no value the index can use"
        if typed.common is None:
            return f"Spark subtracts {typed.g_type} from {typed.f_type} by rules of its own"
        if find_family(typed.common) == "numeric":
            return self._rewrite_numeric_band(typed, op == "<", constant)
        if typed.f_type == typed.g_type and is_day_time(constant.type):
            return self._rewrite_interval_band(typed, op == "<", to_micros(constant.value))
        return f"abs over {typed.common} is not indexed"

    def _rewrite_numeric_band(self, typed: "_TypedPair", is_strict: bool, constant: Constant) -> str | None:
        common, domain = typed.common, find_domain(typed.common or "")
        assert common is not None
        if find_family(constant.type) != "numeric" or domain is None or domain is Domain.WIDE_DECIMAL:
            return f"abs over {common} with a limit of type {constant.type} is not indexed"
        if is_integral(common) and not self.resolver.is_ansi:
            # Outside ANSI mode 2147483647 - -2147483648 is -1, so the ends of the type are neighbours.
            return f"differences of {common} wrap around outside ANSI mode; BETWEEN is indexed"
        limit = constant.value
        if not math.isfinite(limit) or limit < 0:
            return "the limit of abs is negative or not finite"
        if domain is Domain.FLOAT:
            # A difference is rounded to the nearest float. The band is widened by more than this error.
            delta = float(limit) * (1 + 2.0**-22) if common == "float" else float(limit)
            left, right = self._add_band(
                typed, domain, math.nextafter(delta + (1e-44 if common == "float" else 0.0), math.inf)
            )
            exact = ExactBand(float(limit), is_strict, common == "float")
            if limit < MAX_DOUBLE_INT and self._add_check(left, right, exact):
                return None
            return "floating-point differences are rounded"
        scale = (parse_decimal(common) or (0, 0))[1]
        units = Fraction(limit) * 10**scale
        if constant.type in ("float", "double"):
            if units >= MAX_DOUBLE_INT:
                return f"Spark compares {common} with {constant.type} in floating point"
            if not is_integral(common):
                self._add_band(typed, domain, math.floor(units) + 1)
                return "decimals are compared with the limit in floating point"
        return self._add_whole_band(typed, domain, units, is_strict)

    def _rewrite_interval_band(self, typed: "_TypedPair", is_strict: bool, limit_us: int) -> str | None:
        common = typed.common
        if limit_us > LONGEST_US:
            return "the limit of abs is longer than 10,000 years"
        if common == "date":
            difference = self.resolver.type_of(f"({typed.f.text}) - ({typed.g.text})", self.query.aliases)
            if difference is None or not is_day_time(difference):
                return "dates subtract to something other than an interval"
            return self._add_whole_band(typed, Domain.INT, Fraction(limit_us, DAY_US), is_strict)
        if common == "timestamp":
            return self._rewrite_timestamp_band(typed, is_strict, limit_us)
        if common == "timestamp_ntz" or is_day_time(common or ""):
            if common == "timestamp_ntz" and self._is_event_time(typed) and limit_us >= is_strict:
                self._narrow_window(is_strict - limit_us, limit_us - is_strict, True)
                return None
            return self._add_whole_band(typed, Domain.INT, Fraction(limit_us), is_strict)
        return f"abs over {common} is not indexed"

    def _rewrite_timestamp_band(self, typed: "_TypedPair", is_strict: bool, limit_us: int) -> str | None:
        # Spark subtracts timestamps as local times, so the keys are local times too.
        delta = limit_us - is_strict
        if delta < 0:
            return "the limit of abs is never met"
        if self._is_event_time(typed):
            is_exact = is_local_free(self.query.streams[0], self.resolver)
            slack = 0 if is_exact else SLACK_US
            self._narrow_window(-delta - slack, delta + slack, is_exact)
            if is_exact:
                return None
        left, right = (
            keys.add_sql(f"CAST(({text}) AS TIMESTAMP_NTZ)", text, Domain.INT)
            for keys, (text, _) in zip(self.out.keys, typed.sides, strict=True)
        )
        self.out.bands.append(Band(left, right, delta, self._text))
        self._add_note("key", f"a band of {spell(delta)} in local time")
        return None

    def _is_event_time(self, typed: "_TypedPair") -> bool:
        columns = [
            find_column(phrase, stream, self.resolver.is_case_sensitive) == stream.event_time is not None
            for phrase, stream in zip((typed.f, typed.g), self.query.streams, strict=True)
        ]
        return all(columns)

    def _add_whole_band(
        self, typed: "_TypedPair", domain: Domain, units: Fraction, is_strict: bool
    ) -> str | None:
        whole = math.floor(units)
        if is_strict and whole == units:
            whole -= 1
        if whole < 0:
            return "the limit of abs is never met"
        self._add_band(typed, domain, whole)
        return None

    def _add_band(self, typed: "_TypedPair", domain: Domain, delta: int | float) -> tuple[int, int]:
        left, right = self._add_keys(typed, domain)
        self.out.bands.append(Band(left, right, delta, self._text))
        self._add_note("key", f"a band of {delta} as {typed.common} ({domain.value} domain)")
        return left, right

    def _add_check(self, left: int, right: int, comparison: ExactBand | ExactOrder) -> bool:
        """Let the units evaluate a comparison of two keys, if they must; return whether they do.

        Pairs of an inner join are filtered behind the units, where Catalyst evaluates the whole conjunct.
        Units that answer each tuple must know which candidates are partners.
        """
        keys = self.out.keys[0].keys[left], self.out.keys[1].keys[right]
        if self.query.how.is_inner or any(key.offset for key in keys):
            return False
        self.out.checks.append(Check(left, right, comparison))
        self._add_note("check", "compared exactly at the units")
        return True


def cast_to_boolean(text: str, type_: str) -> str:
    """Write a conjunct as a filter.

    AND accepts strings as booleans, but a filter does not, so they are cast.
    """
    return text if type_ == "boolean" else f"CAST(({text}) AS BOOLEAN)"


@dataclass(frozen=True)
class _TypedPair:
    """A left and a right expression, and the common type in which Spark combines them."""

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
