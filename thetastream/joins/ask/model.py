"""Reads the model: checks that it is known and not too large, and reads its durations."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.families.option_values import MOST_UNITS
from thetastream.joins.ask.catalyst import Catalyst
from thetastream.lowering.query import Stream
from thetastream.lowering.statistics import choose_n_units
from thetastream.models import REGISTRY, Chain, Multiway, Ring
from thetastream.models.base import AUTO, Model, is_model
from thetastream.models.multiway import JoinContext


def read_named_model(given: Any) -> tuple[Model | None, list[ThetastreamError]]:
    """Read the model that ``model=`` names. Returns an error if this is no model.

    The model is None if the planner chooses one.
    """
    if given is None or given == AUTO:
        return None, []
    if is_model(given):
        return given, []
    what = f'model must be "auto" or one of {", ".join(kind.__name__ for kind in REGISTRY.values())}'
    return None, [QueryError("UNKNOWN_MODEL", f"{what} with its units, as in th.Biclique(4), not {given!r}")]


class ReadModel(NamedTuple):
    """The model of a request, and what is wrong with it."""

    model: Model | None
    """The model, fitted to the streams. It is None if the planner chooses one."""
    problems: Sequence[ThetastreamError]
    has_open_size: bool = False
    """Whether the user named the model and left its number of units open."""


def read_model(
    given: Any, streams: Sequence[Stream], catalyst: Catalyst, partitions: int, is_counted: bool
) -> ReadModel:
    """Read the model that ``model=`` names, or the only one that can join these streams, and fit it to them.

    Batch DataFrames have no epochs in which messages could arrive. Without a count window, another model
    computes the same bag of results, and it replaces this one.
    """
    if (given is None or given == AUTO) and is_counted and len(streams) > 2:
        given = Ring()
    model, problems = read_named_model(given)
    named = model
    if model is None:
        return ReadModel(None, problems)
    if isinstance(model, Multiway):
        join = JoinContext(
            tuple(stream.alias for stream in streams),
            tuple(stream.event_time is not None for stream in streams),
            choose_n_units(partitions),
            catalyst.duration,
        )
        model = model.fit(join, problems)
    if isinstance(model, Multiway | Chain) and not streams[0].is_streaming and not is_counted:
        model = model.on_batch
    if model.n_units > MOST_UNITS:
        what = f"{model!r} has {model.n_units} units, and a model may have at most {MOST_UNITS}"
        return ReadModel(None, [*problems, QueryError("BAD_UNITS", what)])
    return ReadModel(model, problems, isinstance(named, Multiway) and named.has_open_size)
