"""Snapshots: the rules of the paper, the same snapshots after any replay, and every epoch in one at most."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thetastream.core.errors import QueryError
from thetastream.results.ledger import EpochTotals, Ledger
from thetastream.results.snapshots import EACH_EPOCH, Snapshot, Snapshots

MARKED = st.sets(st.sampled_from("01"))
"""The streams that bring punctuations in an epoch."""
EPOCHS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9), MARKED), min_size=1, max_size=40)
RULES = st.one_of(
    st.just(EACH_EPOCH),
    st.builds(lambda every: Snapshots(every=f"{every}us"), st.integers(1, 20)),
    st.builds(lambda size: Snapshots(size=size), st.integers(1, 30)),
    st.builds(
        lambda every, size, delays: Snapshots(every=timedelta(microseconds=every), size=size, delays=delays),
        st.integers(1, 20),
        st.integers(1, 30),
        st.integers(0, 3),
    ),
    st.just(Snapshots(punctuation="a.last")),
    st.just(Snapshots(punctuation=("a.last", "b.last"))),
)


def make_epochs(drawn: Sequence[tuple[int, int, set[str]]]) -> list[EpochTotals]:
    """Make epochs of some rows, the steps of time between them, and punctuations of some streams."""
    epochs, now = [], 1000
    for number, (rows, step, marked) in enumerate(drawn):
        now += step
        begin, end = (now - 3, now) if rows else (None, None)
        marks = {stream: now - 5 * int(stream) for stream in marked}
        epochs.append(EpochTotals(number, rows, begin, end, punctuations=marks))
    return epochs


def run(epochs: Sequence[EpochTotals], rule: Snapshots, query: str = "q") -> tuple[Ledger, list[Snapshot]]:
    """Commit epochs as a store does: an epoch that is known is left out."""
    ledger, made = Ledger(), []
    for totals in epochs:
        last = ledger.queries.get(query)
        if last is not None and totals.epoch <= last.epoch:
            continue
        ledger, snapshot = ledger.commit(query, totals, rule)
        ledger = Ledger.from_json(ledger.as_json())
        made += [] if snapshot is None else [Snapshot.from_json(snapshot.as_json())]
    return ledger, made


def cut_plainly(epochs: Sequence[EpochTotals], rule: Snapshots) -> list[tuple[int, int, int, str]]:
    """Cut epochs by the words of the paper: (identifier, first epoch, last epoch, rule) of each snapshot."""
    made, first, waited, now, due = [], 0, 0, None, None
    marked: dict[str, int] = {}
    for totals in epochs:
        now = totals.end_us if now is None else max(now, totals.end_us or now)
        rows = sum(one.rows for one in epochs[first : totals.epoch + 1])
        cut = None
        if rule.punctuation is not None:
            marked |= totals.punctuations
            if len(marked) >= len(rule.marks):
                cut, marked = (max(marked.values()), "punctuation"), {}
        elif now is not None:
            multiple = None if rule.every_us is None else now - now % rule.every_us
            if multiple is not None and due is not None and multiple >= due:
                if rule.size is not None and rows < rule.size / 2 and waited < rule.delays:
                    waited += 1
                else:
                    cut = multiple, "every"
            elif rule.size is not None and rows >= rule.size:
                cut = now, "epoch" if rule == EACH_EPOCH else "size"
            if multiple is not None:
                due = multiple + rule.every_us
        if cut is not None:
            made.append((cut[0], first, totals.epoch, cut[1]))
            first, waited = totals.epoch + 1, 0
    return made


@settings(max_examples=300, deadline=None)
@given(EPOCHS, RULES)
def test_snapshots_are_those_of_the_paper(drawn: list[tuple[int, int, set[str]]], rule: Snapshots) -> None:
    epochs = make_epochs(drawn)
    _, made = run(epochs, rule)
    assert [(one.at_us, *one.epochs, one.reason) for one in made] == cut_plainly(epochs, rule)
    for number, one in enumerate(made, 1):
        first, last = one.epochs
        inside = epochs[first : last + 1]
        assert one.number == number
        assert one.rows == sum(totals.rows for totals in inside)
        assert one.begin_us == min((b.begin_us for b in inside if b.begin_us is not None), default=None)
        assert one.end_us == max((b.end_us for b in inside if b.end_us is not None), default=None)


@settings(max_examples=100, deadline=None)
@given(EPOCHS, RULES, st.data())
def test_a_replay_makes_the_same_snapshots(
    drawn: list[tuple[int, int, set[str]]], rule: Snapshots, data: st.DataObject
) -> None:
    epochs = make_epochs(drawn)
    replayed = []
    for totals in epochs:
        replayed.append(totals)
        # A crash: Spark runs some of the last epochs again.
        replayed += epochs[totals.epoch + 1 - data.draw(st.integers(0, 2)) : totals.epoch + 1]
    assert run(replayed, rule) == run(epochs, rule)


@settings(max_examples=50, deadline=None)
@given(EPOCHS, RULES)
def test_two_queries_do_not_change_each_others_snapshots(
    drawn: list[tuple[int, int, set[str]]], rule: Snapshots
) -> None:
    epochs = make_epochs(drawn)
    ledger, made = Ledger(), []
    for totals in epochs:
        for query in ("q", "p"):
            ledger, snapshot = ledger.commit(query, totals, rule)
            made += [] if snapshot is None else [snapshot]
    assert [one.number for one in made] == list(range(1, len(made) + 1))
    alone = [(one.at_us, one.epochs, one.rows) for one in run(epochs, rule)[1]]
    for query in ("q", "p"):
        assert [(one.at_us, one.epochs, one.rows) for one in made if one.query == query] == alone


def test_a_small_snapshot_waits_and_a_large_one_does_not() -> None:
    rule = Snapshots(every="1 minute", size=100, delays=2)
    minute = 60_000_000
    totals = [(10, 0.5), (10, 1.1), (10, 2.2), (10, 3.3), (120, 3.5), (60, 4.2)]
    epochs = [EpochTotals(n, rows, int(at * minute), int(at * minute)) for n, (rows, at) in enumerate(totals)]
    found = [(one.at_us / minute, one.epochs, one.rows, one.reason) for one in run(epochs, rule)[1]]
    assert found == [
        (3, (0, 3), 40, "every"),  # small at minutes 1 and 2, made at minute 3
        (3.5, (4, 4), 120, "size"),
        (4, (5, 5), 60, "every"),
    ]


def test_a_snapshot_without_a_rule_was_made_by_its_epoch() -> None:
    """Its reason was `size`, though nobody had given one."""
    epochs = [EpochTotals(n, rows, n, n) for n, rows in enumerate((3, 0, 2))]
    assert [(one.epochs, one.rows, one.reason) for one in run(epochs, EACH_EPOCH)[1]] == [
        ((0, 0), 3, "epoch"),
        ((1, 2), 2, "epoch"),
    ]


def test_a_query_may_continue_with_another_rule() -> None:
    minute = 60_000_000
    epochs = [EpochTotals(n, 1, n * minute, n * minute) for n in range(9)]
    rules = [Snapshots(every="1 day"), Snapshots(every="2 minutes"), Snapshots(size=2)]
    ledger, made = Ledger(), []
    for totals in epochs:
        ledger, snapshot = ledger.commit("q", totals, rules[totals.epoch // 3])
        made += [] if snapshot is None else [(snapshot.at_us // minute, snapshot.rows, snapshot.reason)]
    assert made == [(4, 5, "every"), (6, 2, "size"), (8, 2, "size")]


def test_a_ledger_of_an_earlier_version_is_read() -> None:
    ledger, _ = Ledger().commit("q", EpochTotals(0, 1, 5, 5), Snapshots(every="10us"))
    values = ledger.as_json()
    values["collected"]["q"]["due_us"] = 10
    assert Ledger.from_json(values) == ledger


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"every": "soon"},
        {"every": "-1 minute"},
        {"every": 60},
        {"size": 0},
        {"size": True},
        {"every": "1m", "size": 5, "delays": True},
        {"size": 10, "delays": 1},
        {"every": "1m", "delays": 1},
        {"every": "1m", "size": 5, "delays": -1},
        {"punctuation": {"a": "a.last"}},
        {"punctuation": ""},
        {"punctuation": []},
        {"punctuation": ["a.last", 3]},
        {"punctuation": "a.last", "size": 3},
    ],
)
def test_a_rule_that_has_no_meaning_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(QueryError, match="BAD_VALUE"):
        Snapshots(**wrong)  # type: ignore[arg-type]
