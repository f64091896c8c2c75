"""Where a ring makes its hops: all in one epoch, or one in each epoch. ``explain`` and checkpoints say so."""

from dataclasses import replace
from typing import Any

import pytest

import thetastream as th
from tests.support.requests import PlainSession, make_request
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.identity import find_changes
from thetastream.families.hops.plan import HOPS, HopsPlan
from thetastream.models.ring import OneEpochRing

ON = "a.k = b.k AND b.x < c.x"


def plan(model: th.Ring, on: str = ON, **changed: Any) -> HopsPlan:
    return HOPS.plan(make_request(on, "abc", model=model, **changed))


def explain(planned: HopsPlan) -> str:
    return "\n".join(map(str, planned.explain()))


class WithoutMailbox(PlainSession):
    """A session without a folder that all units reach."""

    def choose_mailbox_folder(self, asked: object) -> tuple[str, list[ThetastreamError]]:
        return "", [QueryError("MAILBOX", "no folder")]


def test_only_a_ring_with_a_mailbox_needs_a_folder() -> None:
    plan(th.Ring(2), session=WithoutMailbox())
    for ring in (th.Ring(8), th.Ring(2, hops="mailbox")):
        with pytest.raises(QueryError, match="no folder"):
            plan(ring, session=WithoutMailbox())


def test_a_short_ring_makes_all_hops_in_one_epoch() -> None:
    planned = plan(th.Ring(2))
    assert planned.spec.model == OneEpochRing(2, stored_once=1)  # all other streams are tied to b
    assert not planned.spec.has_messages
    assert planned.facts.is_prompt
    assert planned.spec.refinement is not None
    text = explain(planned)
    assert "all in one epoch" in text
    assert "all nodes store a and c: 1.7 copies of a tuple" in text


@pytest.mark.parametrize(
    ("model", "changed", "why"),
    [
        (th.Ring(8), {}, "nodes would store 5.7 copies"),
        (th.Ring(2, hops="mailbox"), {}, 'hops="mailbox" is set'),
        (th.Ring(2, in_flight=9), {}, "in_flight lets tuples wait"),
        (th.Ring(2), {"options": {"max_units": 4}}, "the nodes may change"),
    ],
)
def test_another_ring_makes_a_hop_in_each_epoch_and_says_why(
    model: th.Ring, changed: dict[str, Any], why: str
) -> None:
    planned = plan(model, **changed)
    assert planned.spec.model == model
    assert planned.spec.has_messages
    assert not planned.facts.is_prompt
    assert planned.run.mailbox == "mailbox"
    assert why in explain(planned)
    assert "one an epoch" in explain(planned)


def test_one_epoch_may_be_asked_for() -> None:
    assert isinstance(plan(th.Ring(8, hops="epoch")).spec.model, OneEpochRing)
    with pytest.raises(QueryError, match=r"BAD_HOPS.*in_flight"):
        plan(th.Ring(2, in_flight=9, hops="epoch"))
    growing = plan(th.Ring(2, hops="epoch"), options={"max_units": 4})
    assert isinstance(growing.spec.model, OneEpochRing)
    assert not growing.spec.has_messages
    with pytest.raises(QueryError, match=r"BAD_HOPS.*tuples move when nodes change"):
        plan(th.Ring(2, hops="epoch", moves_tuples=True), options={"max_units": 4})
    with pytest.raises(QueryError, match=r"BAD_HOPS.*not 'soon'"):
        th.Ring(2, hops="soon")


def test_the_largest_of_equally_tied_streams_is_stored_once() -> None:
    rates = th.Statistics(tuples_per_second={"a": 1.0, "b": 1.0, "c": 50.0})
    clique = f"{ON} AND a.x < c.x"
    assert plan(th.Ring(2), clique, statistics=rates).spec.model.stored_once == 2


def test_statistics_do_not_change_where_a_given_number_of_nodes_makes_hops() -> None:
    """A query that has a checkpoint may get statistics."""
    rates = th.Statistics(tuples_per_second={"a": 1.0, "b": 1.0, "c": 500.0})
    for nodes, has_messages in ((3, False), (4, True)):
        for known in (None, rates):
            assert plan(th.Ring(nodes), statistics=known).spec.has_messages == has_messages
    # Copies are few if the largest stream is stored once, so that an open number may be four.
    busy = replace(rates, seconds_per_candidate=1e-3)
    chosen = plan(th.Ring(9), statistics=busy, has_open_size=True, partitions=9).spec
    assert isinstance(chosen.model, OneEpochRing)
    assert chosen.model.n_units > 3


def test_tuples_of_one_instant_are_held_for_no_time() -> None:
    assert isinstance(plan(th.Ring(3), within_us=0).spec.model, OneEpochRing)
    idle = th.Statistics(tuples_per_second=0)
    assert isinstance(plan(th.Ring(3), statistics=idle).spec.model, OneEpochRing)


def test_where_hops_are_made_does_not_depend_on_the_partitions_of_the_session() -> None:
    busy = th.Statistics(tuples_per_second=100, seconds_per_candidate=1e-3)
    for partitions in (2, 16):
        ring = plan(th.Ring(partitions), statistics=busy, has_open_size=True, partitions=partitions)
        assert (ring.spec.model.n_units, ring.spec.has_messages) == (partitions, True)


def test_a_checkpoint_keeps_where_hops_are_made() -> None:
    before, now = (dict(plan(th.Ring(2, hops=hops)).flow().identity) for hops in ("mailbox", "auto"))
    assert set(now) - set(before) == {"the setting hops of the ring"}
    assert {name: now[name] for name in before} == before
    (change,) = find_changes(before, now)
    assert change.startswith(
        'the setting hops of the ring was not set, it is "epoch" (th.Ring(..., hops="mailbox")'
    )
