"""Writes calls of Spark's ``window`` in a condition as arithmetic, which a join condition may contain.

    window(t, d, d, s).start  =  t - pmod(t - s, d)        (microseconds)
    window(f, d) = window(g, d)   ->   start of f's window = start of g's window

Spark replaces ``window`` by an operator of its own, which a join condition cannot hold. A tumbling window is
one value of one tuple. A tuple is in several sliding windows, and in a session window with other tuples, so
these are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from thetastream.conditions import Phrase, parse
from thetastream.conditions.tokens import STRINGS, read_call
from thetastream.core.errors import QueryError
from thetastream.core.spans import to_micros
from thetastream.core.spark_types import is_day_time
from thetastream.joins.ask.catalyst import Catalyst

_CALLS = ("WINDOW", "WINDOW_TIME", "SESSION_WINDOW")
_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"
_EQUAL = (("=",), ("==",), ("<=>",), ("IS", "NOT", "DISTINCT", "FROM"))


@dataclass(frozen=True)
class _Window:
    """A tumbling window over a time: its length and the start of one window, in microseconds."""

    time: str
    is_local: bool
    """Whether the time has the type TIMESTAMP_NTZ."""
    length_us: int
    start_us: int

    @property
    def start_micros(self) -> str:
        """The SQL of the start in microseconds since 1970."""
        micros = f"unix_micros({self.time})"
        if self.is_local:  # unix_micros would read it in the time zone of the session
            seconds = f"CAST(CAST(({self.time}) - {_EPOCH} AS INTERVAL SECOND) AS DECIMAL(24, 6))"
            micros = f"CAST({seconds} * 1000000 AS BIGINT)"
        moved = micros if self.start_us == 0 else f"{micros} - ({self.start_us})"
        return f"({micros} - pmod({moved}, {self.length_us}))"

    def write_end(self, is_end: bool) -> str:
        """Write the SQL of the start or the end of the window."""
        micros = f"{self.start_micros} + {self.length_us}" if is_end else self.start_micros
        return (
            f"timestampadd(MICROSECOND, {micros}, {_EPOCH})"
            if self.is_local
            else f"timestamp_micros({micros})"
        )

    @property
    def struct(self) -> str:
        """The SQL of the window as Spark returns it."""
        ends = f"'start', {self.write_end(False)}, 'end', {self.write_end(True)}"
        return f"CASE WHEN ({self.time}) IS NOT NULL THEN named_struct({ends}) END"


def has_window_calls(phrase: Phrase) -> bool:
    """Whether a phrase calls ``window``, ``window_time`` or ``session_window``."""
    return bool(_find_calls(phrase))


def write_windows(phrase: Phrase, catalyst: Catalyst, aliases: Sequence[str]) -> Phrase:
    """Write each call of ``window`` as arithmetic. In the phrase, every column has its alias.

    Raises
    ------
    QueryError
        SESSION_WINDOW, SLIDING_WINDOW, or WINDOW_CALL if the arguments are not those of a window.
    """
    reader = _WindowReader(catalyst, aliases)
    while calls := _find_calls(phrase):
        n = calls[-1]  # the innermost one of nested calls
        end = _find_end(phrase, n)
        pair = reader.read_pair(phrase, calls)
        if pair is not None:
            start, stop, written = pair
        else:
            start, stop, written = reader.write_call(phrase, n, end)
        tokens, text = phrase.tokens, phrase.source
        phrase = parse(text[: tokens[start].start] + written + text[tokens[stop - 1].end :])
    return phrase


def _find_calls(phrase: Phrase) -> list[int]:
    tokens = phrase.tokens
    return [
        n
        for n in range(len(tokens) - 1)
        if tokens[n].keyword in _CALLS
        and tokens[n].kind not in ("FIELD", *STRINGS)
        and tokens[n + 1].text == "("
    ]


def _find_end(phrase: Phrase, n: int) -> int:
    """Return the position behind the call that begins at ``n``."""
    depth = phrase.tokens[n + 1].depth
    closing = (m for m in range(n + 2, len(phrase.tokens)) if phrase.tokens[m].depth == depth)
    return next(closing) + 1


@dataclass(frozen=True)
class _WindowReader:
    catalyst: Catalyst
    aliases: Sequence[str]

    def read_pair(self, phrase: Phrase, calls: Sequence[int]) -> tuple[int, int, str] | None:
        """Read the last two calls as an equality of windows of one length, and write it over their starts."""
        if len(calls) < 2 or phrase.tokens[calls[-1]].keyword != "WINDOW":
            return None
        n, m = calls[-2:]
        end, stop = _find_end(phrase, n), _find_end(phrase, m)
        operator = tuple(token.keyword for token in phrase.tokens[end:m])
        before = phrase.tokens[n - 1].keyword if n else "("
        after = phrase.tokens[stop].keyword if stop < len(phrase.tokens) else ")"
        stands_alone = before in ("(", "AND", "OR", "NOT", "!") and after in (")", "AND", "OR")
        if operator not in _EQUAL or not stands_alone or phrase.tokens[n].keyword != "WINDOW":
            return None
        left, right = self.read(phrase.slice(n, end)), self.read(phrase.slice(m, stop))
        if (left.is_local, left.length_us, left.start_us) != (
            right.is_local,
            right.length_us,
            right.start_us,
        ):
            return None
        return n, stop, f"{left.start_micros} {' '.join(operator)} {right.start_micros}"

    def write_call(self, phrase: Phrase, n: int, end: int) -> tuple[int, int, str]:
        call, tokens = phrase.slice(n, end), phrase.tokens
        if tokens[n].keyword == "SESSION_WINDOW":
            raise QueryError(
                "SESSION_WINDOW",
                f"a condition cannot compare {call.text!r}: the end of a session depends on the tuples that "
                "follow; bound the event times instead, as in abs(a.ts - b.ts) <= INTERVAL 5 MINUTES",
            )
        if tokens[n].keyword == "WINDOW_TIME":
            _, (window,) = read_call(call) or ("", [call])
            return n, end, f"timestampadd(MICROSECOND, -1, ({window.text}).end)"
        found = self.read(call)
        if end + 1 < len(tokens) and tokens[end].text == "." and tokens[end + 1].keyword in ("START", "END"):
            return n, end + 2, found.write_end(tokens[end + 1].keyword == "END")
        return n, end, found.struct

    def read(self, call: Phrase) -> _Window:
        """Read the arguments of ``window(time, length[, slide[, start]])``."""
        _, arguments = read_call(call) or ("", [])
        if not 2 <= len(arguments) <= 4:
            raise _make_error(call, "it has two to four arguments")
        spans = [self._read_span(call, argument) for argument in arguments[1:]]
        length, slide, start = [*spans, *[spans[0], 0][len(spans) - 1 :]]
        if length <= 0 or slide <= 0:
            raise _make_error(call, "its length must be above zero")
        if slide != length:
            raise QueryError(
                "SLIDING_WINDOW",
                f"a tuple is in several windows of {call.text!r}, which slides, and a condition compares one "
                "value of each tuple; give the window one length, or compute its windows before the join",
            )
        if abs(start) >= slide:
            raise _make_error(call, "its start must be less than its length")
        time, type_ = self._read_time(arguments[0])
        return _Window(time, type_ == "timestamp_ntz", length, start)

    def _read_time(self, phrase: Phrase) -> tuple[str, str]:
        text = phrase.text
        type_ = self.catalyst.type_of(text, self.aliases)
        if type_ is None:
            test = parse(f"({text}) IS NULL")
            raise next(
                iter(self.catalyst.problems(test, [test])), _make_error(phrase, "Spark cannot read it")
            )
        if type_.startswith("struct<start:"):
            text, type_ = f"timestampadd(MICROSECOND, -1, ({text}).end)", type_[13:].partition(",")[0]
        if type_ not in ("timestamp", "timestamp_ntz"):
            text, type_ = f"CAST(({text}) AS TIMESTAMP)", "timestamp"
        return text, type_

    def _read_span(self, call: Phrase, phrase: Phrase) -> int:
        if len(phrase.tokens) == 1 and phrase.tokens[0].kind in STRINGS:
            constant = self.catalyst.constant(f"INTERVAL {phrase.text}")
            if constant is not None and constant.value is not None and is_day_time(constant.type):
                return to_micros(constant.value)
        elif len(phrase.tokens) == 1 and phrase.text.rstrip("lL").isdecimal():
            return int(phrase.text.rstrip("lL"))
        raise _make_error(call, f"{phrase.text!r} is no span of days or less, as in '10 seconds'")


def _make_error(call: Phrase, why: str) -> QueryError:
    return QueryError(
        "WINDOW_CALL", f"{call.text!r} is no window: {why}; write it as in window(a.ts, '10 seconds')"
    )
