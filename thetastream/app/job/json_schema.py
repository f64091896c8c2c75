"""Describes job files as a JSON Schema, with which editors complete keys and check values.

The keys are those that the reader of job files allows, and the parameters of models, stores, policies and so
on are read from their classes. Other packages may add stores and policies, so their tables may have any keys.
"""

import json
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import reduce
from inspect import signature
from operator import or_
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from thetastream.app.job import changing_tables, document, source_tables, task_tables
from thetastream.app.job.rechoosing import Rechoosing
from thetastream.app.job.spec import READERS, REPLAY, SINK_KEYS, SINKS
from thetastream.core.shed import Shed
from thetastream.families.option_values import IndexName
from thetastream.families.options import StatementOptions, TaskOptions, list_options
from thetastream.lowering.statistics import Statistics
from thetastream.models import REGISTRY as MODELS
from thetastream.results.snapshots import Snapshots
from thetastream.runtime.control.policies import REGISTRY as POLICIES
from thetastream.runtime.control.policies import TwoPhaseScaling
from thetastream.statements.insert import MODES
from thetastream.statements.sink_store import STORE, SinkStore
from thetastream.stores.registry import REGISTRY as STORES

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Mapping[object, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    dict: {"type": "object"},
    list: {"type": "array"},
    Path: {"type": "string"},
    timedelta: {"type": "string"},
}
_NAMES: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_SCALARS: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_SUMMARIES = {
    "sql": "One SELECT, or INSERT INTO a sink of this job, with CREATE VIEW statements before it.",
    "checkpoint": "The folder from which the job continues after a restart.",
    "trigger": 'The time between two epochs, as in "10 seconds", or "available now": a run reads what is '
    "there and ends. Without it, epochs follow one another.",
    "name": "The name of the query in Spark.",
    "finish": "No more input comes: a run reads what is there, decides every row and ends.",
    "sources": "The streams that FROM names.",
    "tables": "Tables beside the streams: the parameters of th.Table.",
    "tasks": "Several joins of two sources over one exchange, as th.join_many; sql selects FROM tasks.",
    "sink": "Where the results go: a format of Spark, or a store.",
    "sinks": "Sinks with names, for INSERT INTO.",
    "model": "The model and its parameters. Without it, the planner chooses one by cost.",
    "policy": "The policy that changes the units while the job runs. It needs max_units.",
    "rechoose": "When the model is chosen again while the job runs. It needs max_units.",
    "shed": "The load shedder: the parameters of th.Shed.",
    "statistics": "Figures from which costs are estimated: the parameters of th.Statistics.",
    "options": "Options of the joins.",
    "spark": "Settings of the Spark session.",
}


def make_schema() -> Schema:
    """Make the JSON Schema of a job file.

    >>> schema = make_schema()
    >>> sorted(schema["required"]), sorted(schema["properties"])[:3]
    (['checkpoint', 'sources', 'sql'], ['checkpoint', 'finish', 'model'])
    """
    source = _make_table(source_tables.KEYS)
    source["properties"] |= {
        "select": {"type": "array", "items": {"type": "string"}},
        "changes": _make_table(source_tables.CHANGES_KEYS),
        "by_arrival": _make_table(source_tables.BY_ARRIVAL_KEYS),
        "options": _SCALARS,
        "reader": {"enum": [*READERS]},
        "format": {
            "type": "string",
            "examples": [*source_tables.FILE_FORMATS, REPLAY, "rate", "socket", "kafka", "delta"],
        },
    }
    table = _make_table(changing_tables.KEYS)
    table["properties"]["options"] = _SCALARS
    policy = _choose(
        "name", {name: _read_parameters(kind) for name, kind in POLICIES.items()}, TwoPhaseScaling.name
    )
    policy["anyOf"].append(_allow_others("name", POLICIES))
    task = _make_table(task_tables.KEYS)
    task["properties"] |= {
        "within": {"anyOf": [_TYPES[str], {"type": "object", "additionalProperties": _TYPES[str]}]},
        "index": _describe(IndexName),
    }
    task["required"] = ["on"]
    tables: dict[str, Schema] = {
        "sources": {"type": "object", "additionalProperties": source, "minProperties": 1},
        "tables": {"type": "object", "additionalProperties": table},
        "tasks": {"type": "object", "additionalProperties": task},
        "sink": _make_sink(),
        "sinks": {"type": "object", "additionalProperties": {"$ref": "#/properties/sink"}},
        "model": _choose("name", {name: _read_parameters(kind) for name, kind in MODELS.items()}, "biclique"),
        "policy": policy,
        "rechoose": _read_parameters(Rechoosing),
        "shed": _read_parameters(Shed),
        "statistics": _read_parameters(Statistics),
        "options": _make_options(),
        "spark": _SCALARS,
    }
    properties = {
        name: {"description": _SUMMARIES[name], **tables.get(name, _TYPES[kind])}
        for name, kind in document.KEYS.items()
    }
    return {
        "$schema": DIALECT,
        "title": "A job of Thetastream",
        "type": "object",
        "properties": properties,
        "required": ["sql", "checkpoint", "sources"],
        "additionalProperties": False,
    }


def write_schema() -> str:
    """Write the JSON Schema of a job file as text."""
    return json.dumps(make_schema(), indent=1, ensure_ascii=False) + "\n"


def _make_table(keys: Mapping[str, object]) -> Schema:
    """Describe a table by the keys that its reader allows. The type ``object`` stands for columns."""
    properties = {name: dict(_TYPES.get(kind, _NAMES)) for name, kind in keys.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _make_sink() -> Schema:
    """Describe a sink: a format of Spark, or one of the kinds of stores."""
    spark = _make_table(SINK_KEYS)
    spark["properties"] |= {"format": {"enum": [*SINKS]}, "mode": {"enum": [*MODES]}, "options": _SCALARS}
    kept = _read_parameters(SinkStore)["properties"]
    own = {name: one for name, one in kept.items() if name != STORE}
    own |= {"key": _NAMES, "snapshots": _read_parameters(Snapshots), "mode": {"enum": ["append"]}}
    stores = []
    for name, kind in STORES.items():
        store = _read_parameters(kind)
        store["properties"] = {STORE: {"const": name}, **store["properties"], **own}
        store["required"] = [STORE, *store.get("required", [])]
        stores.append(store)
    return {"anyOf": [spark, *stores, _allow_others(STORE, STORES)]}


def _make_options() -> Schema:
    """Describe the options of statements and of join tasks that a text can give, with their meaning."""
    found: Schema = {}
    for door in (StatementOptions, TaskOptions):
        hints = get_type_hints(door)
        for name, option in list_options(door).items():
            if option.is_text:
                summary = f"{option.summary} By default: {option.default}."
                found[name] = {"description": summary, **_describe(hints[name])}
    return {"type": "object", "properties": found, "additionalProperties": False}


def _choose(key: str, kinds: Mapping[str, Schema], default: str) -> Schema:
    """Describe a table whose key names one of several kinds, each with parameters of its own."""
    described = []
    for name, kind in kinds.items():
        properties = {key: {"const": name}, **kind["properties"]}
        needed = [*([] if name == default else [key]), *kind.get("required", [])]
        described.append({**kind, "properties": properties, "required": needed})
    return {"anyOf": described}


def _allow_others(key: str, known: Mapping[str, object]) -> Schema:
    """Describe a kind of another package: any keys beside its name."""
    name = {"type": "string", "not": {"enum": [*known]}}
    return {"type": "object", "properties": {key: name}, "required": [key]}


def _read_parameters(kind: Callable[..., Any]) -> Schema:
    """Describe the parameters of a class."""
    hints = get_type_hints(kind)
    parameters = signature(kind).parameters
    required = [name for name, one in parameters.items() if one.default is one.empty]
    properties = {name: _describe(hints[name]) for name in parameters}
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _describe(hint: Any) -> Schema:
    """Describe a type of Python. What TOML cannot write, such as None, is left out.

    >>> _describe(int | None), _describe(Literal["a", "b"])
    ({'type': 'integer'}, {'enum': ['a', 'b']})
    >>> _describe(tuple[int, int])
    {'type': 'array', 'items': {'type': 'integer'}}
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        found: list[Schema] = []
        for one in arguments:
            described = None if one is type(None) else _describe(one)
            if described is not None and described not in found:
                found.append(described)
        return found[0] if len(found) == 1 else {"anyOf": found}
    if origin is Literal:
        return {"enum": [*arguments]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _describe(arguments[1])}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        items = [one for one in arguments if one is not Ellipsis]
        return {"type": "array", "items": _describe(reduce(or_, items))}
    return dict(_TYPES.get(hint, {}))
