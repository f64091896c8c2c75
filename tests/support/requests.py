"""Requests that families plan without a Spark session: a resolver and a session made of plain values."""

from collections.abc import Collection, Sequence
from typing import Any

from thetastream.conditions import parse, split_conjuncts
from thetastream.core.columns import name_payload
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.how import HOWS, How
from thetastream.core.spans import parse_duration, to_micros
from thetastream.families.options import GivenOptions
from thetastream.families.request import JoinRequest
from thetastream.lowering.domains import quote
from thetastream.lowering.payload import find_carrier
from thetastream.lowering.physical import Carried
from thetastream.lowering.query import Constant, Stream
from thetastream.runtime.flow import RunContext

TYPES = (("id", "bigint"), ("k", "int"), ("x", "int"), ("ts", "timestamp"))


class PlainResolver:
    """Knows the types of columns, and that numbers are INT."""

    is_case_sensitive = False
    is_ansi = True
    zone_is_fixed = True

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = {stream.alias: stream for stream in streams}

    def type_of(self, text: str, aliases: Sequence[str]) -> str | None:
        alias, _, column = text.strip().partition(".")
        if alias in aliases and column.isidentifier():
            return dict(self._streams[alias].types).get(column)
        parts = text.split(" - ")
        types = [self.type_of(part, aliases) for part in parts] if len(parts) == 2 else []
        if types and None not in types:
            return types[0]
        return "int" if text.strip().isdecimal() else None

    def constant(self, text: str) -> Constant | None:
        return Constant("int", int(text)) if text.strip().isdecimal() else None

    def duration(self, duration: object, what: str) -> int:
        read = parse_duration(str(duration))
        assert read is not None, what
        return to_micros(read)

    def carry(
        self, stream: Stream, names: Collection[str] | None, first: int
    ) -> tuple[tuple[Carried, ...], list[QueryError]]:
        kept = [(name, type_) for name, type_ in stream.types if names is None or name in names]
        return tuple(make_carried(stream.alias, *found, n) for n, found in enumerate(kept, first)), []


def make_carried(alias: str, name: str, type_: str, number: int) -> Carried:
    carrier, block = find_carrier(type_), name_payload(number)
    column = f"{quote(alias)}.{quote(name)}"
    restored = carrier.from_block(quote(block), type_)
    return Carried(name, block, carrier.block_type(type_), carrier.to_block(column), restored, type_)


class PlainSession:
    """A session in which nothing is wrong."""

    def find_problems(self, n_units: int) -> Sequence[ThetastreamError]:
        return ()

    def choose_mailbox_folder(self, asked: object) -> tuple[str, list[ThetastreamError]]:
        return str(asked or "mailbox"), []

    def warn_of_state(self, nbytes: float) -> None:
        """The machine has memory enough."""


def make_request(
    on: str, aliases: str = "ab", within_us: int | None = 5_000_000, how: str | How = "inner", **changed: Any
) -> JoinRequest:
    """Make the request of a join of streams with the columns ``TYPES``; ``changed`` are fields of it."""
    streams: list[Stream] = []
    for alias in aliases:
        stream = Stream(alias, TYPES, event_time="ts", watermark_delay_us=1_000_000)
        carried, _ = PlainResolver([stream]).carry(stream, None, sum(len(s.carried) for s in streams))
        streams.append(Stream(alias, TYPES, carried, "ts", watermark_delay_us=1_000_000))
    options = changed.pop("options", {})
    fields: dict[str, Any] = {
        "streams": tuple(streams),
        "on": (on,),
        "conjuncts": tuple(split_conjuncts(parse(on))),
        "predicates": (),
        "within": within_us,
        "within_us": None if within_us is None else (within_us,) * len(streams),
        "how": HOWS[how] if isinstance(how, str) else how,
        "model": None,
        "has_open_size": False,
        "given": GivenOptions(options),
        "statistics": None,
        "archive_period_us": None,
        "has_result_time": True,
        "run": RunContext(),
        "partitions": 4,
        "resolver": PlainResolver(streams),
        "session": PlainSession(),
    }
    return JoinRequest(**{**fields, **changed})
