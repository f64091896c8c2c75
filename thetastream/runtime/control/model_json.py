"""Models as JSON, for requests and plans: a name and the fields that differ from the defaults."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from datetime import timedelta
from typing import Any

from thetastream.core.errors import QueryError
from thetastream.core.spans import Rows
from thetastream.models import REGISTRY
from thetastream.models.base import Model

_NAME, _ROWS, _MICROS = "name", "rows", "microseconds"


def encode_model(model: Model) -> dict[str, Any]:
    """Convert a model to plain values.

    >>> from thetastream.models import Biclique
    >>> encode_model(Biclique((4, 2)))
    {'name': 'biclique', 'units': [4, 2]}
    """
    values = {
        one.name: getattr(model, one.name)
        for one in fields(model)  # type: ignore[arg-type]
        if one.default is MISSING or getattr(model, one.name) != one.default
    }
    return {_NAME: model.name, **{name: _encode(value) for name, value in values.items()}}


def decode_model(values: Mapping[str, Any]) -> Model:
    """Read what ``encode_model`` returned.

    Raises
    ------
    QueryError
        BAD_REQUEST if the values name no model, and the errors of the model.
    """
    kind = REGISTRY.get(str(values.get(_NAME)))
    if kind is None:
        raise QueryError("BAD_REQUEST", f"a model must be one of {', '.join(REGISTRY)}, not {dict(values)}")
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    unknown = [name for name in values if name not in known and name != _NAME]
    if unknown:
        raise QueryError("BAD_REQUEST", f"{kind.__name__} has no {', '.join(unknown)}, only {sorted(known)}")
    try:
        return kind(**{name: _decode(value) for name, value in values.items() if name != _NAME})
    except (TypeError, ValueError, OverflowError) as error:
        what = f"a request must give {kind.__name__} values of the right types, not {dict(values)!r:.200}"
        raise QueryError("BAD_REQUEST", f"{what}: {error}") from error


def _encode(value: Any) -> Any:
    if isinstance(value, Rows):
        return {_ROWS: value.n}
    if isinstance(value, timedelta):
        return {_MICROS: value // timedelta(microseconds=1)}
    if isinstance(value, tuple | list):
        return [_encode(one) for one in value]
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {_ROWS}:
        return Rows(value[_ROWS])
    if isinstance(value, dict) and set(value) == {_MICROS}:
        return timedelta(microseconds=value[_MICROS])
    return tuple(value) if isinstance(value, list) else value
