"""Which changes a checkpoint allows, part by part, and what an offset keeps."""

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from thetastream.core.errors import StateError
from thetastream.core.identity import CHOSEN, COLUMNS, NARROWER, Part, find_changes, fix_choices
from thetastream.lowering.identity import Reading, describe_inputs
from thetastream.lowering.physical import Filter, SidePlan
from thetastream.runtime.state.manifest import FORMAT
from thetastream.spark.sources.identity import LONGEST, IdentityReader, refuse_scaled

ALL = ReadAllAvailable()


def window(*spans: list[int | None]) -> Part:
    return Part(json.dumps(spans), str(spans), NARROWER)


def columns(*names: str) -> Part:
    return Part(json.dumps(names), ", ".join(names), COLUMNS)


def chosen(partitions: int | str, model: str) -> Part:
    return Part(f"{partitions}:{model}", model, CHOSEN)


NAMED = Part("Split(2)", "Split(2)")


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (window([-9, 5]), window([-9, 5]), None),
        (window([-9, 5]), window([-8, 5]), None),
        (window([-9, None]), window([-9, 3]), None),
        (window([-9, 5]), window([-9, 6]), "which is not inside the old one"),
        (window([-9, 5]), window([None, 5]), "which is not inside the old one"),
        (window([None, None]), window([-9, 5]), "which is not inside the old one"),
        (window([-9, 5], [0, 1]), window([-9, 5]), "which is not inside the old one"),
        (columns("id int", "x int"), columns("id int", "x int"), None),
        (columns("id int", "x int"), columns("id int", "y int"), "it had x int and now has y int"),
        (columns("id int", "x int"), columns("id int"), "it had x int"),
        (columns("id int"), columns("id int", "x int"), "it has x int"),
        (columns("id int", "x int"), columns("x int", "id int"), "it has the same columns in another order"),
        (chosen(2, "Biclique(1)"), chosen(2, "Biclique(1)"), None),
        (chosen(2, "Biclique(1)"), chosen(8, "Biclique(4)"), None),
        (chosen(2, "Biclique(1)"), Part("Biclique(1)", "Biclique(1)"), None),
        (Part("Biclique(1)", "Biclique(1)"), chosen(2, "Biclique(1)"), None),
        (chosen(2, "Biclique(1)"), chosen(2, "Split(2)"), "give model=th.Biclique(1) to continue"),
        (
            chosen(2, "Biclique(1)"),
            NAMED,
            "it was Biclique(1) (chosen for 2 shuffle partitions), it is Split(2)",
        ),
        (
            Part('{"keys": []}', "a.k <=> b.k"),
            Part('{"keys": ["k"]}', "a.k <=> b.k"),
            "it is a.k <=> b.k as before, but it is planned otherwise, because of another version",
        ),
        (NAMED, chosen(2, "Biclique(1)"), "it was Split(2), it is Biclique(1); give model=th.Split(2)"),
        (chosen("", "Biclique(1)"), chosen("", "Biclique(4)"), "it was Biclique(1), it is Biclique(4)"),
    ],
)
def test_what_may_change(before: Part, now: Part, said: str | None) -> None:
    changes = find_changes({"it": before}, {"it": now})
    assert len(changes) == (said is not None)
    assert said is None or said in changes[0]


def test_only_filters_that_exclude_null_are_left_out() -> None:
    """A filter whose last part is IS NOT NULL may have another part before it."""
    either = "(a.x > 3) OR (a.y) IS NOT NULL"
    texts = ["a.x > 1", "(a.y) IS NOT NULL", either]
    filters = (Filter.require("a.x"), *map(Filter.read, texts))
    described = describe_inputs([SidePlan("a", filters, (), ())], Reading())["filters"]
    assert described == describe_inputs([SidePlan("a", filters[1::2], (), ())], Reading())["filters"]
    assert len(described[0]) == 2


def test_a_running_query_has_one_model() -> None:
    """Units compare the model that runs, so they never mix two choices."""
    running = [
        fix_choices({"the model": chosen(n, model)}) for n, model in ((2, "Biclique(1)"), (8, "Biclique(4)"))
    ]
    assert find_changes(*running) == [
        "the model was Biclique(1), it is Biclique(4); give model=th.Biclique(1) to continue"
    ]


@pytest.mark.parametrize("n_columns", [2, 1500])
def test_an_offset_keeps_the_identity(n_columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")  # A refusal sets it, in a process of its own.

    def query(span: int, partitions: int) -> dict[str, Part]:
        names = [f"a_rather_long_column_{n} decimal(38,18)" for n in range(n_columns)]
        model = chosen(partitions, f"Biclique({partitions // 2})")
        return {"stream 'a'": columns(*names), "the window": window([-span, span]), "the model": model}

    first = IdentityReader(query(9, 2))
    start = first.initialOffset()
    assert first.latestOffset(start, ALL) == start
    assert list(first.partitions(start, start)) == []
    assert len(json.dumps(start)) < max(LONGEST, 10 * n_columns)
    # A narrower window is kept from then on, and the first choice of a model for ever.
    again = IdentityReader(query(5, 8))
    end = again.latestOffset(json.loads(json.dumps(start)), ALL)
    assert end == IdentityReader(query(5, 2)).initialOffset() != start
    assert again.latestOffset(end, ALL) == end
    with pytest.raises(StateError, match=r"STATE_OF_ANOTHER_QUERY.*the window was \(\[-5, 5\],\)"):
        first.latestOffset(end, ALL)


def test_a_state_of_another_format_is_refused_before_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    reader = IdentityReader({"the window": window([-9, 9])})
    start = reader.initialOffset()
    other = {**start, "writer": {"thetastream": "99.0", "state": FORMAT + 1}}
    for ask in (lambda: reader.latestOffset(other, ALL), lambda: reader.partitions(other, other)):
        with pytest.raises(StateError, match=rf"STATE_FORMAT.*must be {FORMAT}.*has {FORMAT + 1}"):
            ask()
    # An earlier version did not write who it is, and another version may write the same format.
    for before in (
        {"query": start["query"]},
        {**start, "writer": {"thetastream": "0.0", "state": FORMAT}},
    ):
        assert reader.latestOffset(before, ALL) == start


@pytest.mark.parametrize(("tasks", "needed"), [({}, "max_units"), ({"tasks": []}, "max_tasks")])
def test_a_join_that_has_changed_needs_the_setting_by_which_it_could(
    tasks: dict[str, list[object]], needed: str
) -> None:
    with pytest.raises(StateError, match=f"CONTROL_NEEDED.*changed 2 time.*give {needed} to continue"):
        refuse_scaled({"control": {"plan": {"version": 2, **tasks}}})
