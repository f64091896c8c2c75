"""What Python can name, a job, a command, a statement and a request name by the same words."""

from pathlib import Path
from typing import Any

import pytest

import thetastream as th
from thetastream.app.cli import build_parser
from thetastream.app.cli.serving import read_named_store
from thetastream.app.job.document import examine
from thetastream.app.job.json_schema import make_schema
from thetastream.app.job.spec import Job, parse_model
from thetastream.core.errors import ThetastreamError
from thetastream.families.options import StatementOptions, TaskOptions, list_options
from thetastream.index import REGISTRY as SHAPES
from thetastream.joins.tasks import TASK_SETTINGS
from thetastream.models import REGISTRY as MODELS
from thetastream.models import Model
from thetastream.results.store import Store
from thetastream.runtime.control.plan import decode_model, encode_model
from thetastream.runtime.control.policies import REGISTRY as POLICIES
from thetastream.runtime.control.policies import decode_policy, encode_policy, make_policy
from thetastream.statements.sink_store import read_sink_store
from thetastream.stores.registry import REGISTRY as STORES
from thetastream.stores.registry import read_store

MODEL_EXAMPLES: list[Model] = [
    th.Biclique((4, 2)),
    th.Biclique(((3, 1), 2), subgroups=(2, 1)),
    th.Biclique(8, subgroups=2, routing="hash"),
    th.Matrix(2, 3),
    th.Split(3),
    th.Chain(3, fast_forward=True),
    th.Ring(3),
    th.ATR(2, segment="1 minute"),
    th.CTR(2, segment="1 minute"),
]
STORE_EXAMPLES: dict[str, tuple[Store, str, dict[str, Any]]] = {
    "parquet": (th.ParquetStore("/out"), "parquet:/out", {"path": "/out"}),
    "delta": (th.DeltaStore("/out"), "delta:/out", {"path": "/out"}),
    "postgres": (
        th.PostgresStore("postgresql:///r", "t"),
        "postgresql:///r?table=t",
        {"url": "postgresql:///r", "table": "t"},
    ),
    "cassandra": (
        th.CassandraStore("cassandra://h/k", "t"),
        "cassandra://h/k?table=t",
        {"url": "cassandra://h/k", "table": "t"},
    ),
    "hbase": (th.HBaseStore("h:1", "t"), "hbase:h:1?table=t", {"address": "h:1", "table": "t"}),
}
"""For each kind of store: the store, its text for commands and statements, and its keys in a job."""


def make_job(**tables: Any) -> Job:
    """Read a job that has these tables beside two sources."""
    source = {"format": "rate", "event_time": "timestamp", "select": ["value AS id", "timestamp"]}
    document = examine(
        {
            "sql": "SELECT a.id FROM a, b WHERE a.id = b.id WITHIN 5 seconds",
            "checkpoint": "state",
            "sources": {"a": source, "b": source},
            **tables,
        },
        Path("/jobs"),
    )
    assert not document.all_problems
    assert document.job is not None
    return document.job


@pytest.mark.parametrize("model", MODEL_EXAMPLES, ids=repr)
def test_models(model: Model) -> None:
    """A job and a request name a model and its parameters as Python does."""
    named = encode_model(model)
    problems: list[ThetastreamError] = []
    assert parse_model(named, problems) == model
    assert problems == []
    assert make_job(model=named).model == decode_model(named) == model


def test_each_kind_is_an_example() -> None:
    assert {model.name for model in MODEL_EXAMPLES} == MODELS.keys()
    assert STORE_EXAMPLES.keys() == STORES.keys()


@pytest.mark.parametrize("kind", STORES)
def test_stores(kind: str) -> None:
    """A job, ``th.insert``, statements and commands name a store as Python does."""
    store, text, keys = STORE_EXAMPLES[kind]
    assert read_store(text) == store
    assert read_sink_store({"store": kind, **keys}, "the sink").store == store
    kept = make_job(sink={"store": kind, **keys, "key": "id"}).sink.kept
    assert kept is not None
    assert kept.store == store
    for command in ("verify", "upkeep"):
        assert build_parser().parse_args([command, text]).store == text
    assert read_named_store(f"pairs={text}") == ("pairs", store)


@pytest.mark.parametrize("name", POLICIES)
def test_policies(name: str) -> None:
    """A job, a command and a request name a policy as Python does."""
    policy = POLICIES[name]()
    assert make_policy(name, {}) == decode_policy(encode_policy(policy)) == policy
    assert make_job(policy={"name": name}, options={"max_units": 4}).policy == policy
    assert build_parser().parse_args(["follow", "out", "--policy", name]).policy == name
    assert build_parser().parse_args(["simulate", "--policy", name]).policy == name


def test_tasks() -> None:
    """A job has the tasks of ``th.join_many``, with the settings and the options that Python takes."""
    described = make_schema()["properties"]["tasks"]["additionalProperties"]
    assert tuple(described["properties"]) == TASK_SETTINGS
    near = {"on": "a.id = b.id", "within": "5 s", "index": "hash", "archive_period": "1 s"}
    options = {"max_tasks": 4, "result_time": False}
    job = make_job(sql="SELECT task FROM tasks", tasks={"near": near}, options=options)
    assert job.tasks == {"near": near}
    assert job.options == options


def test_options() -> None:
    """A job has each option that a text can give, with the values that Python takes."""
    known = list_options(StatementOptions) | list_options(TaskOptions)
    described = make_schema()["properties"]["options"]["properties"]
    assert described.keys() == {name for name, option in known.items() if option.is_text}
    assert described["index"]["enum"] == [*SHAPES]
    for shape in SHAPES:
        assert make_job(options={"index": shape}).options["index"] == shape
    assert make_job(options={"max_units": 8}).options["max_units"] == 8
