"""What joins of changes cannot have: all that a delete would make wrong is refused before a query starts.

A stream of changes has deletes beside inserts. Its join is the join of the net rows: the inserts of both
streams without the deleted rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from thetastream.core.columns import CHANGE_TYPE
from thetastream.core.condition import SideSpec
from thetastream.core.errors import QueryError
from thetastream.core.how import How
from thetastream.engine.multiway.graph import JoinGraph
from thetastream.families.option_values import EARLY
from thetastream.families.request import JoinRequest
from thetastream.families.windows import is_counted
from thetastream.lowering.lower import Lowered
from thetastream.lowering.query import Stream
from thetastream.lowering.versions import write_as_of
from thetastream.models import Chain
from thetastream.models.base import Model
from thetastream.models.multiway import Multiway


def find_changes_problems(request: JoinRequest) -> Iterator[QueryError]:
    """Yield an error for all that a join of changes cannot have."""
    changing = [stream.alias for stream in request.streams if stream.change_type is not None]
    if not changing:
        return
    rows, options = f"rows of {', '.join(changing)} may be deleted", request.options
    if all(stream.inserts_only for stream in request.streams):
        rows = f"outer={EARLY!r} takes results back"
    if request.bounds_watermark and len(request.streams) > 2:
        what = f"{rows}, and equal rows of joins before the last one differ in a bound of the watermark"
        yield QueryError("EVERY", f"{what}; leave every out")
    if request.has_tables:
        what = f"{rows}, and tables beside streams are read anew in each epoch"
        yield QueryError("CHANGES_TABLE", f"{what}; read the table as a stream too, with th.changes")
    if request.keeps_spark_join:
        yield QueryError("SPARK_JOIN", f"{rows}, and Spark's own join does not know it; leave model out")
    if is_counted(request.within):
        what = f"{rows}, and the last n tuples would be others than before the delete"
        yield QueryError("COUNT_WINDOW", f"{what}; use a window of event time")
    if options.get("order") is not None or options.get("punctuations"):
        yield QueryError("ORDER", f"{rows}, and the results of an epoch have no order; leave order out")
    if request.run.shed is not None:
        yield QueryError(
            "SHED", f"{rows}, and a shedder could drop an insert and keep its delete; leave shed out"
        )
    if options.get("max_units") is not None and not request.how.is_inner:
        what = f"{rows}, and units of two generations would answer equal rows"
        yield QueryError("CANNOT_SCALE", f"{what}; leave max_units out")
    has_deletes = not all(stream.inserts_only for stream in request.streams)
    undeclared = next((one.name for one in request.predicates if has_deletes and not one.is_stable), None)
    if undeclared is not None:
        what = f"{rows}, and {undeclared!r} may find another answer for the delete than for the insert"
        hint = 'th.stable(predicate, version="1") declares that it never does'
        yield QueryError("PREDICATE_CHANGES", f"{what}; {hint}; or write the condition in SQL")
    model = request.model
    if isinstance(model, Chain) and model.forwards_tuples:
        what = f"{rows}, and {model!r} may find a delete before its insert"
        yield QueryError("CHANGES_LATE", f"{what}; use th.Biclique or th.Matrix, or leave model out")
    if isinstance(model, Multiway) and model.in_flight is not None:
        what = f"{rows}, and in_flight lets tuples wait, so that their deletes wait too"
        yield QueryError("CHANGES_LATE", f"{what}; leave in_flight out")
    if CHANGE_TYPE in (stream.alias.casefold() for stream in request.streams):
        what = f"results of changes have a column {CHANGE_TYPE!r}"
        yield QueryError("INVALID_ALIAS", f"{what}; rename the stream")


def answer_early(
    how: How, streams: Sequence[Stream], is_asked: bool
) -> tuple[tuple[How, tuple[Stream, ...]], list[QueryError]]:
    """Return the kind of join that answers rows without partners at once, and its streams.

    The results are changes, so all streams have signs. Without ``is_asked``, a default of the session is left
    out if the join has no such rows.
    """
    if not how.padded or how.nearest is not None:
        what = f"outer={EARLY!r} is for rows without partners of left, right and full joins"
        hint = f"how={how.name!r} has none; leave outer out"
        return (how, tuple(streams)), [QueryError("OUTER", f"{what}, and {hint}")] if is_asked else []
    signed = (
        stream
        if stream.change_type is not None
        else replace(stream, change_type=CHANGE_TYPE, inserts_only=True)
        for stream in streams
    )
    return (replace(how, is_early=True), tuple(signed)), []


def find_versions_problems(request: JoinRequest) -> Iterator[QueryError]:
    """Yield an error for all that a join with versions cannot have, apart from its condition.

    A join finds the version that is valid at the time of a tuple: the nearest one before it.
    """
    streams, how = request.streams, request.how
    versions = [stream for stream in streams if stream.versions is not None]
    if not versions:
        return
    names = ", ".join(stream.alias for stream in versions)
    what = f"{names} has versions of rows, and a tuple of another stream has the one of its time"
    if len(streams) != 2 or len(versions) != 1 or versions[0] is not streams[1]:
        hint = "join two streams at a time, and name the versions last"
        yield QueryError("VERSIONS", f"{what}; {hint}")
    elif request.has_tables or request.keeps_spark_join:
        hint = (
            "read both as streams or both as batches, and leave model out; th.Table(valid_from=) is a table"
        )
        yield QueryError("VERSIONS", f"{what}; {hint}")
    elif how.nearest is None or how.nearest.k != 1 or is_counted(request.within) or request.predicates:
        yield QueryError("VERSIONS", f"{what}; {write_as_of(*streams)}")


def find_state_problem(model: Model, lowered: Lowered) -> QueryError | None:
    """Return an error if deleted rows would stay in the state of a model for ever, else None.

    Units that see all tuples store them by their numbers, so a delete and its insert lie at several units.
    """
    physical = lowered.physical
    return _refuse_state(model, physical.condition.sides, physical.lifetimes_us) if model.sees_all else None


def find_scaling_problem(request: JoinRequest, lowered: Lowered) -> QueryError | None:
    """Return an error if the units of a join of changes cannot change while it runs, else None.

    When units have changed, a delete may come to another unit than its insert. Their results add up all the
    same, and in a window both expire.
    """
    sides, lifetimes_us = lowered.physical.condition.sides, lowered.physical.lifetimes_us
    changing = ", ".join(side.alias for side in sides if side.has_deletes)
    if request.options.get("max_units") is None or not changing:
        return None
    if None in lifetimes_us:
        what = f"rows of {changing} may be deleted, and rows that have moved would never meet their deletes"
        return QueryError("CANNOT_SCALE", f"{what}; give within, or leave max_units out")
    if any(side.rules.is_strict for side in sides):
        what = f"strict=True of {changing} compares a delete with its insert, and other units may have it"
        return QueryError("CANNOT_SCALE", f"{what}; leave strict or max_units out")
    return None


def find_hops_problem(model: Multiway, graph: JoinGraph, max_units: int | None) -> QueryError | None:
    """Return an error for what a join of changes hop by hop cannot have, else None.

    Nodes cancel only what is inserted and deleted in one epoch (``thetastream.engine.multiway.admission``).
    """
    changing = ", ".join(side.alias for side in graph.sides if side.has_deletes)
    if changing and max_units is not None:
        what = f"rows of {changing} may be deleted, and nodes of such joins do not change"
        return QueryError("CANNOT_SCALE", f"{what}; leave max_units or model out")
    lifetimes = [graph.lifetime_us(stream) for stream in range(len(graph.sides))]
    return _refuse_state(model, graph.sides, lifetimes)


def _refuse_state(
    model: Model, sides: Sequence[SideSpec], lifetimes_us: Sequence[int | None]
) -> QueryError | None:
    """Return an error if streams of changes are strict or have no window, under a model that does not bring
    equal tuples to one unit."""
    changing = [side.alias for side in sides if side.has_deletes]
    strict = [side.alias for side in sides if side.rules.is_strict]
    if strict:
        what = (
            f"strict=True of {', '.join(strict)} compares a delete with its insert, and {model!r} brings them"
        )
        return QueryError(
            "CHANGES_STATE", f"{what} to two units; use th.Biclique or th.Matrix, or leave it out"
        )
    if not changing or None not in lifetimes_us:
        return None
    what = f"rows of {', '.join(changing)} may be deleted, and {model!r} would keep deleted tuples for ever"
    return QueryError("CHANGES_STATE", f"{what}; give within, or use th.Biclique or th.Matrix")
