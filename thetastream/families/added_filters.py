"""Writes the filters of a join task that is added while its query runs, for units that decide them.

    one filter -> clauses, all of which must hold; of a clause, one test must be true

    c OP constant, c BETWEEN .. AND ..      tests
    c IS [NOT] NULL, c, NOT c               tests; the last two of a boolean column
    p AND q, p OR q, NOT (p OR q)           clauses of p and of q
    c [NOT] IN (constants)                  equalities, of which one is true or none

Units decide as Spark does, so everything else has no written form: other expressions than columns, and
comparisons in a type in which units do not compare.
"""

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import chain, product
from math import isfinite, prod
from typing import TypeVar

from thetastream.conditions.comparisons import cut_at_or, find_comparisons, strip_not
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import FLIPPED, Comparison, cut_at_and, split_comparisons
from thetastream.conditions.tokens import Phrase, parse
from thetastream.core.condition import Domain
from thetastream.core.spark_types import parse_decimal
from thetastream.engine.running_tasks import IS_NULL, Clause, ColumnTest
from thetastream.lowering.domains import find_domain, find_family, is_same_key
from thetastream.lowering.event_time import find_column
from thetastream.lowering.physical import Filter
from thetastream.lowering.query import Constant, Resolver, Stream

_T = TypeVar("_T")
_EPOCH = date(1970, 1, 1)
_MOST = 64
"""The number of clauses of a disjunction, and of constants of IN, that are written at most."""


def write_clauses(one: Filter, stream: Stream, resolver: Resolver) -> list[Clause] | None:
    """Write one filter over block columns; None if units cannot decide it as Spark does."""
    writer = _FilterWriter(stream, resolver)
    if one.required is None:
        return writer.write(parse(one.text))
    test = writer.write_test_of_column(parse(one.required))
    return None if test is None else [(test,)]


class _FilterWriter:
    """Writes conditions of one stream. Every method returns None for what units cannot decide."""

    def __init__(self, stream: Stream, resolver: Resolver) -> None:
        self._stream = stream
        self._resolver = resolver
        self._blocks = {carried.field: carried.block_column for carried in stream.carried}

    def write(self, phrase: Phrase) -> list[Clause] | None:
        """Write any condition."""
        phrase, is_negated = strip_not(phrase)
        if "XOR" in phrase.kinds:
            return None
        ors, ands = cut_at_or(phrase), cut_at_and(phrase)
        parts = ors if len(ors) > 1 else ands
        if len(parts) == 1:
            return self._write_one(phrase, is_negated)
        clauses = _require_all(
            self.write(parse(f"NOT ({part.text})") if is_negated else part) for part in parts
        )
        if clauses is None:
            return None
        # NOT (p OR q) is NOT p AND NOT q, also where p or q is NULL.
        if (len(ors) > 1) is is_negated:
            return [*chain(*clauses)]
        # (p AND q) OR r is (p OR r) AND (q OR r).
        if prod(map(len, clauses)) > _MOST:
            return None
        return [tuple(chain(*one)) for one in product(*clauses)]

    def _write_one(self, phrase: Phrase, is_negated: bool) -> list[Clause] | None:
        words = [token.keyword for token in phrase.tokens]
        if words[-2:] == ["IS", "NULL"] or words[-3:] == ["IS", "NOT", "NULL"]:
            is_null = (words[-2:] == ["IS", "NULL"]) is not is_negated
            n_words = 2 if words[-2] == "IS" else 3
            test = self.write_test_of_column(phrase.slice(0, -n_words), IS_NULL if is_null else None)
            return None if test is None else [(test,)]
        column = self._find(phrase)
        if column is not None:
            return self._write_boolean(column, is_negated)
        if "IN" in phrase.kinds:
            return self._write_in(phrase, is_negated)
        found = find_comparisons(parse(f"NOT ({phrase.text})") if is_negated else phrase)
        if not found:
            return self._write_unequal(phrase, is_negated)
        tests = _require_all(self._write_comparison(one, one.op) for one in found)
        return None if tests is None else [(test,) for test in tests]

    def write_test_of_column(self, phrase: Phrase, op: str | None = None) -> ColumnTest | None:
        """Write a test of a column without a constant: ``IS NULL``, or that it has a value."""
        column = self._find(phrase)
        return None if column is None else ColumnTest(self._blocks[column], op)

    def _write_boolean(self, column: str, is_negated: bool) -> list[Clause] | None:
        if self._stream.type_of(column) != "boolean":
            return None
        block = self._blocks[column]
        return [(ColumnTest(block, "=", Domain.INT, 0) if is_negated else ColumnTest(block, is_flag=True),)]

    def _write_in(self, phrase: Phrase, is_negated: bool) -> list[Clause] | None:
        """Write ``c IN (constants)`` and ``c NOT IN (constants)``."""
        at = next(n for n in phrase.top if phrase.tokens[n].kind == "IN")
        is_not = at > 0 and phrase.tokens[at - 1].kind == "NOT"
        operand, op = phrase.slice(0, at - is_not).bare(), "<>" if is_not is not is_negated else "="
        constants = phrase.slice(at + 1).bare().split_at_commas()
        if len(constants) > _MOST:
            return None
        # Spark compares the operand with all constants in one type.
        both = ", ".join(f"({one.text})" for one in (operand, *constants))
        tests = _require_all(
            self._write_comparison(Comparison(operand, op, one.bare()), op, f"coalesce({both})")
            for one in constants
        )
        if tests is None:
            return None
        return [tuple(tests)] if op == "=" else [(test,) for test in tests]

    def _write_unequal(self, phrase: Phrase, is_negated: bool) -> list[Clause] | None:
        """Write ``f <> g``, and ``NOT f = g``."""
        equal = split_comparisons(phrase) if is_negated else find_comparisons(parse(f"NOT ({phrase.text})"))
        if [one.op for one in equal] != ["="]:
            return None
        test = self._write_comparison(equal[0], "<>")
        return None if test is None else [(test,)]

    def _write_comparison(
        self, comparison: Comparison, op: str, compared: str | None = None
    ) -> ColumnTest | None:
        """Write a comparison of a column and a constant, in the type in which Spark compares them.

        This is the type of the expression ``compared``, if it is given.
        """
        f, g = comparison.f, comparison.g
        column = self._find(f)
        if column is None:
            f, g, op = g, f, FLIPPED.get(op, op)
            column = self._find(f)
        if comparison.limit is not None or op == "<=>" or column is None:
            return None
        constant = None if find_references(g, (self._stream.alias,)) else self._resolver.constant(g.text)
        if constant is None or constant.value is None:
            return None
        block, type_ = self._blocks[column], self._stream.type_of(column)
        common = type_
        if compared is not None or constant.type != type_:
            family = find_family(type_)
            if constant.type != type_ and (family is None or family != find_family(constant.type)):
                return None
            compared = compared or f"coalesce(({f.text}), ({g.text}))"
            common = self._resolver.type_of(compared, (self._stream.alias,)) or ""
        if parse_decimal(type_):
            scaled = _scale(constant, type_, common)
            return None if scaled is None else ColumnTest(block, op, Domain.DECIMAL, scaled)
        domain = find_domain(common)
        if domain is None or not is_same_key(type_, common):
            return None
        if common == "timestamp":
            constant = self._resolver.constant(f"unix_micros(CAST(({g.text}) AS TIMESTAMP))")
        value = None if constant is None else _read_constant(constant, common, domain)
        if value is None:
            return None
        return ColumnTest(block, op, None if domain is Domain.TEXT else domain, value)

    def _find(self, phrase: Phrase) -> str | None:
        return find_column(phrase, self._stream, self._resolver.is_case_sensitive)


def _require_all(found: Iterable[_T | None]) -> list[_T] | None:
    """Return all values; None if one of them is None."""
    values = []
    for one in found:
        if one is None:
            return None
        values.append(one)
    return values


def _scale(constant: Constant, type_: str, common: str) -> int | None:
    """Return a constant as an integer in the scale of a decimal type.

    None if it is no such integer, or if Spark compares in a type that has fewer digits behind the point.

    >>> _scale(Constant("decimal(2,1)", Decimal("2.5")), "decimal(10,2)", "decimal(10,2)")
    250
    """
    (precision, scale), compared = parse_decimal(type_) or (0, 0), parse_decimal(common)
    if precision > 18 or compared is None or compared[1] < scale:
        return None
    scaled = Fraction(constant.value) * 10**scale
    return int(scaled) if scaled.denominator == 1 and abs(scaled) < 10**18 else None


def _read_constant(constant: Constant, common: str, domain: Domain) -> int | float | str | None:
    """Return a constant as units compare it; None if they cannot.

    >>> _read_constant(Constant("int", 3), "double", Domain.FLOAT)
    3.0
    >>> _read_constant(Constant("date", date(1970, 1, 3)), "date", Domain.INT)
    2
    """
    value = constant.value
    if common == "string":
        return value if isinstance(value, str) else None
    if common == "date":
        return (value - _EPOCH).days if type(value) is date else None
    if domain is Domain.INT and isinstance(value, int) and (common == "boolean") is isinstance(value, bool):
        return int(value)
    if domain is Domain.FLOAT and common == "double" and isinstance(value, int | float | Decimal):
        # JSON has no number for NaN and infinity.
        return float(value) if isfinite(value) else None
    return None
