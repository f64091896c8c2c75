"""Multi-way joins whose nodes change while they run, against the nested loop."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.support.controlled_graphs import explore, measure_agreement, run_graph_schedule
from tests.support.controlled_run import ControlledRun
from thetastream.core.spans import Rows
from thetastream.engine.multiway import hop_orders, selectivities
from thetastream.engine.multiway.equal_decisions import EqualDecisions
from thetastream.engine.multiway.node import MultiwayNode
from thetastream.engine.multiway.partial_results import Overlap
from thetastream.models import ATR, CTR, Multiway, Ring
from thetastream.models.ring import OneEpochRing

KINDS = {"ring": Ring, "ctr": CTR, "atr": ATR, "one epoch": OneEpochRing}


@pytest.fixture(autouse=True)
def _eager_refinement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few comparisons are needed, so hop orders change and trials happen."""
    monkeypatch.setattr(selectivities, "PRIOR_MATCHES", 0.01)
    monkeypatch.setattr(hop_orders, "CHANGE_BELOW", 1.0)
    monkeypatch.setattr(hop_orders, "TRIAL_EVERY", 2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_random_schedules_with_crashes_find_the_bag_of_the_nested_loop(
    seed: int, kind: type[Multiway]
) -> None:
    found, expected, run = run_graph_schedule(seed, kind)
    assert found == expected
    assert run.offset.plan.version > 0
    if kind is Ring:
        assert len(set(measure_agreement(run))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_schedules_with_crashes(seed: int, kind: type[Multiway]) -> None:
    found, expected, _ = run_graph_schedule(seed, kind, epochs=20)
    assert found == expected


# All schedules of a small world

SPAN = timedelta(microseconds=1)
SMALL: dict[str, Multiway] = {
    "ring": Ring(1, Rows(1)),
    "waiting": Ring(1, Rows(1), in_flight=4),
    "ctr": CTR(1, 2, SPAN),
    "atr": ATR(1, SPAN, 1),
    "one epoch": Ring(1, Rows(1)).store_once(1),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SMALL)
def test_all_schedules_of_a_small_world(name: str) -> None:
    assert list(explore(SMALL[name])) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_all_longer_schedules_of_a_small_world(name: str) -> None:
    assert list(explore(SMALL[name], n_changes=4)) == []


class NewestVisited(ControlledRun):
    """Partial results visit the newest generation only."""

    @property
    def _slots(self) -> Sequence[int]:
        return self.plan.newest.slots


class EndedAtOnce(ControlledRun):
    """A generation ends without waiting for its nodes."""

    def epoch(self, batches: Any, watermark_us: int | None = None) -> Iterator[list[pa.Array]]:
        self.drained = set(self.offset.plan.leaving.items())
        yield from super().epoch(batches, watermark_us)


def address_newest(node: MultiwayNode, partial: Any, generations: Any) -> Iterator[Any]:
    """Address partial results to the cover of the newest generation only."""
    return _ADDRESS(node, partial, generations[:1])


def keep_all(overlap: Overlap, members: Any, partners: Any, is_complete: bool) -> Any:
    """Find the results that the newer generation finds too."""
    return _JOIN(overlap, members, partners, False)


_ADDRESS, _JOIN = MultiwayNode._address, Overlap.join
BROKEN: dict[str, tuple[str, type[ControlledRun], tuple[Any, str, Any] | None]] = {
    "newest visited": ("ring", NewestVisited, None),
    "ended at once": ("ring", EndedAtOnce, None),
    "newest addressed": ("ctr", ControlledRun, (MultiwayNode, "_address", address_newest)),
    "all kept": ("atr", ControlledRun, (Overlap, "join", keep_all)),
    "all kept in one epoch": ("one epoch", ControlledRun, (Overlap, "join", keep_all)),
    "nothing stored": ("atr", ControlledRun, (MultiwayNode, "_overlap_with_newer", lambda *_: None)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", BROKEN)
def test_the_search_finds_what_is_wrong_in_broken_variants(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, kind, patch = BROKEN[name]
    if patch is not None:
        monkeypatch.setattr(*patch)
    assert next(explore(SMALL[model], kind), None) is not None


def test_results_are_lost_if_nodes_that_join_do_not_know_the_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They then give tuples other hop orders than the nodes that leave."""
    monkeypatch.setattr(EqualDecisions, "make_messages", lambda _: iter(()))
    runs = (run_graph_schedule(seed, Ring) for seed in (7, 6, 14, 16))
    assert any(found != expected for found, expected, _ in runs)
