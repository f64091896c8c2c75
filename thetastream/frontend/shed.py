"""Reads ``shed=``, and refuses it where a join cannot shed."""

from collections.abc import Sequence

from thetastream.core.how import How
from thetastream.core.shed import LAG, Shed
from thetastream.errors import QueryError, ThetastreamError
from thetastream.models.base import Model
from thetastream.plan.query import Stream


def read_shed(
    given: Shed | None, how: How, streams: Sequence[Stream], problems: list[ThetastreamError]
) -> Shed | None:
    """Return the load shedder, and add an error if the query cannot have it.

    Joins that answer each tuple are refused. Otherwise a row without partners could appear although a partner
    has been dropped.
    """
    if given is None:
        return None
    if not how.is_inner:
        problems.append(
            QueryError(
                "SHED",
                f"how={how.name!r} answers each tuple, and a shedder may drop the partners of a tuple; "
                'leave shed out, or use how="inner"',
            )
        )
    timeless = [stream.alias for stream in streams if stream.event_time is None]
    if given.load == LAG and timeless:
        problems.append(
            QueryError(
                "SHED",
                f'load="lag" compares event times with the clock, and {", ".join(timeless)} has none; call '
                '.withWatermark("column", "delay") on it, or use load="state"',
            )
        )
    return given


def find_shed_problem(shed: Shed | None, model: Model) -> QueryError | None:
    """Return an error if the units of a model cannot drop what the shedder drops, else None."""
    if shed is None or not shed.sheds_probes or model.sends_probes_apart:
        return None
    return QueryError(
        "SHED",
        f'what="probes" needs a model that sends what is stored and what probes apart, and {model!r} sends '
        'them together; use th.Biclique, or what="tuples"',
    )
