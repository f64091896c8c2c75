"""Hashes of tuples are computed when a route reads them: by Spark if the planned model does, or else
by a router."""

import numpy as np
import pyarrow as pa
import pytest

from thetastream.core.columns import HASH
from thetastream.core.sides import Role
from thetastream.engine import routing
from thetastream.engine.routing import Router, reads_hashes, sends_probes_apart
from thetastream.models import ATR, CTR, Biclique, Chain, Matrix, Ring, Split
from thetastream.runtime.routing_step import PlanRouter

BATCH = pa.record_batch({"k": [3, 1, 2, 1], "text": ["a", None, "c", "a"]})
READERS = [Biclique(2), Biclique((1, 2)), Biclique(((2, 1), 1)), Biclique(4, subgroups=2), Matrix(2, 1)]
OTHERS = [
    Biclique(1),
    Biclique(2, subgroups=2),
    Matrix(1, 1),
    Matrix(2, 2, subgroups=2),
    Split(3),
    Chain(2),
    Ring(2),
    ATR(2),
    CTR(2),
]


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the rows of each batch that a router hashes."""
    found: list[int] = []
    hash_rows = routing.hash_rows

    def note(batch: pa.RecordBatch) -> object:
        found.append(batch.num_rows)
        return hash_rows(batch)

    monkeypatch.setattr(routing, "hash_rows", note)
    return found


def store_blocks(batch: pa.RecordBatch) -> dict[int, pa.RecordBatch]:
    """Route a batch of left tuples; return the blocks that units store."""
    routes = Router(Biclique(2)).route(0, batch)
    return {unit: block for unit, role, block in routes if role == Role.STORE}


def test_spark_computes_the_hashes_that_the_routes_of_a_model_depend_on() -> None:
    assert [model for model in READERS if not reads_hashes(model)] == []
    assert [model for model in OTHERS if reads_hashes(model)] == []


def test_roles_say_whether_probes_are_sent_apart() -> None:
    assert {type(model) for model in (*READERS, *OTHERS) if sends_probes_apart(model)} == {Biclique}


def test_a_batch_without_hashes_is_hashed_once_and_only_if_a_route_reads_them(hashed: list[int]) -> None:
    list(Router(Split(2)).route(0, BATCH))
    assert hashed == []
    stored = store_blocks(BATCH)
    assert hashed == [4]
    assert sum(block.num_rows for block in stored.values()) == 4
    # A task that runs again routes in the same way.
    assert store_blocks(BATCH) == stored
    two = PlanRouter(((Router(Biclique(2)), (0, 1, 2, 3)), (Router(Matrix(2, 1)), (4, 5))))
    list(two.route(1, BATCH))
    assert hashed == [4, 4, 4]


def test_hashes_of_spark_are_taken_as_they_are(hashed: list[int]) -> None:
    given = BATCH.append_column(HASH, pa.array([0, 1, 1, 0]))
    stored = {unit: block["k"].to_pylist() for unit, block in store_blocks(given).items()}
    assert stored == {0: [3, 1], 1: [1, 2]}
    assert hashed == []


def test_rows_that_cannot_be_hashed_go_to_one_unit(hashed: list[int]) -> None:
    nested = pa.record_batch({"k": pa.array([[1], [2]])})
    assert np.array_equal(routing.hash_rows(nested), [0, 0])
    assert list(store_blocks(nested).values()) == [nested]
