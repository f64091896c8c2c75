"""The model as the user gives it: known, of a size that can be spread, its durations read."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from thetastream.errors import QueryError, ThetastreamError
from thetastream.models import REGISTRY, Multiway, Ring
from thetastream.models.base import Model
from thetastream.models.multiway import AUTO
from thetastream.plan.choose import units_of
from thetastream.plan.query import Stream
from thetastream.spark.catalyst import Catalyst

MOST_UNITS = 4096


def read_model(
    given: Any,
    streams: Sequence[Stream],
    catalyst: Catalyst,
    partitions: int,
    problems: list[ThetastreamError],
) -> Model | None:
    """The model that ``model=`` names; None: one is to be chosen."""
    if given is None or given == AUTO:
        return None
    if isinstance(given, str | type) or not hasattr(given, "route"):
        problems.append(
            QueryError(
                "UNKNOWN_MODEL",
                f'model must be "auto" or one of {", ".join(kind.__name__ for kind in REGISTRY.values())} '
                f"with its units, not {given!r}",
            )
        )
        return None
    model: Model = given
    if isinstance(model, Multiway):
        model = read_multiway(model, streams, catalyst, partitions, problems)
    if model.n_units > MOST_UNITS:
        problems.append(
            QueryError(
                "BAD_UNITS", f"{model!r} has {model.n_units} units, and at most {MOST_UNITS} are spread"
            )
        )
        return None
    return model


def read_multiway(
    model: Multiway,
    streams: Sequence[Stream],
    catalyst: Catalyst,
    partitions: int,
    problems: list[ThetastreamError],
) -> Multiway:
    """The model with a number of nodes, stretches in microseconds, and streams by number."""
    if isinstance(model, Ring) and model.nodes == AUTO:
        model = replace(model, nodes=units_of(partitions))
    name = model.span_field
    try:
        if isinstance(model.span, str):
            span = timedelta(microseconds=catalyst.duration(model.span, name))
            model = replace(model, **{name: span})  # type: ignore[type-var]
        model = model.numbered([stream.alias for stream in streams])
    except QueryError as problem:
        problems.append(problem)
        return model
    problems += [
        QueryError(
            f"BAD_{name.upper()}",
            f"{name}s of event time need one of the streams that are cut, and {streams[n].alias!r} has none",
        )
        for n in model.timed(len(streams))
        if streams[n].event_time is None
    ]
    return model
