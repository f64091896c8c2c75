"""Bounds that expressions over event times have, with answers of Catalyst that stand in the test."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from thetastream.conditions import parse
from thetastream.lowering.event_terms import Term, TermReader
from thetastream.lowering.query import Constant, Stream

MINUTE_US = 60_000_000


@dataclass(frozen=True)
class Answers:
    """Answers of Catalyst: constants and types by their text."""

    zone_is_fixed: bool = True
    is_case_sensitive: bool = False
    is_ansi: bool = False

    def type_of(self, text: str, aliases: Sequence[str]) -> str | None:
        return "bigint" if text.startswith("unix_") else None

    def constant(self, text: str) -> Constant | None:
        known = {
            "1": ("int", 1),
            "7": ("int", 7),
            "2.5": ("decimal(2,1)", Decimal("2.5")),
            "2.5D": ("double", 2.5),
            "'MINUTE'": ("string", "MINUTE"),
            "CAST(1 AS FLOAT)": ("float", 1.0),
            "'SECOND'": ("string", "SECOND"),
        }
        return Constant(*known[text]) if text in known else None

    def duration(self, duration: object, what: str) -> int:
        raise NotImplementedError


def read(text: str, type_: str = "timestamp", **answers: Any) -> Term | None:
    streams = [Stream(alias, (("ts", type_),), event_time="ts") for alias in "ab"]
    return TermReader(streams, Answers(**answers)).read(parse(text))


@pytest.mark.parametrize("name", ["unix_timestamp", "to_unix_timestamp"])
def test_these_functions_round_times_before_1970_towards_it(name: str) -> None:
    """unix_timestamp('1969-12-31 23:59:59.5Z') is 0, and unix_seconds of it is -1."""
    second = Fraction(1_000_000)
    assert read(f"{name}(a.ts)") == Term((1, 0), -999_999, 999_999, second)
    assert read("unix_seconds(a.ts)") == Term((1, 0), -999_999, 0, second)


def test_the_remainder_by_a_fraction_is_less_than_the_fraction() -> None:
    """pmod(2, 2.5) is 2, which is more than 2.5 - 1."""
    by_fraction = read("unix_micros(a.ts) - pmod(unix_micros(a.ts), 2.5)")
    by_integer = read("unix_micros(a.ts) - pmod(unix_micros(a.ts), 7)")
    assert by_fraction is not None
    assert (by_fraction.low, by_fraction.high) == (-3, 0)
    assert by_integer is not None
    assert (by_integer.low, by_integer.high) == (-6, 0)


@pytest.mark.parametrize("text", ["date_trunc('SECOND', a.ts)", "timestampdiff(SECOND, a.ts, b.ts)"])
def test_a_cast_to_timestamp_reads_the_clock_of_the_session(text: str) -> None:
    """Spark casts a TIMESTAMP_NTZ to TIMESTAMP in these functions, where a local hour may be skipped."""
    for type_, zone_is_fixed in (("timestamp_ntz", False), ("timestamp_ntz", True)):
        term = read(text, type_, zone_is_fixed=zone_is_fixed)
        assert term is not None
        assert term.is_local is not zone_is_fixed
    truncated = read("date_trunc('SECOND', a.ts)", zone_is_fixed=False)
    assert truncated is not None
    assert not truncated.is_local


def test_a_float_outside_ansi_mode_is_no_exact_number() -> None:
    """unix_seconds(a.ts) + CAST(1 AS FLOAT) has 24 bits, so it may be minutes away from the time."""
    assert read("unix_seconds(a.ts) + CAST(1 AS FLOAT)") is None
    assert read("unix_seconds(a.ts) + 1") is not None


@pytest.mark.parametrize(
    "text", ["unix_micros(a.ts) + 2.5D", "unix_micros(a.ts) - pmod(unix_micros(a.ts), 2.5D)"]
)
def test_a_sum_with_a_double_rounds_times_far_from_1970(text: str) -> None:
    """2^53 + 1 microseconds are no DOUBLE, so Spark finds such a time equal to its neighbour."""
    assert read(text) is None


def test_products_wrap_around_outside_ansi_mode() -> None:
    assert read("unix_seconds(a.ts) * 7", is_ansi=True) is not None
    assert read("unix_seconds(a.ts) * 7", is_ansi=False) is None


def test_a_clock_may_skip_half_a_minute() -> None:
    """In Monrovia, date_trunc('MINUTE', 1972-01-07 00:44:35Z) is 01:28:30Z, which is later."""
    term = read("date_trunc('MINUTE', a.ts)", zone_is_fixed=False)
    assert term is not None
    assert term.is_local
