"""The live view of a query: lines, or a table in a notebook, until the query ends."""

import sys
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

import thetastream as th
from tests.support.metric_entries import make_entry
from thetastream.core.identity import KIND
from thetastream.runtime.observe.epoch_lines import describe_epoch
from thetastream.spark.observe import live
from thetastream.spark.observe.live import describe_state, render_view

PLAN = {"words": {"the condition": "a.x < b.x", "the model": "Split(2)"}}


class EndingQuery:
    """A query that ends after some looks; a new epoch has come before each of them."""

    recentProgress = ({"sink": {"description": "a.b.ConsoleTable$@3c1"}},)
    name, id = "pairs", "e18f"

    def __init__(self, looks: int, failure: Exception | None = None) -> None:
        self.looks, self.left, self.failure = looks, looks, failure

    @property
    def isActive(self) -> bool:
        self.left -= 1
        return self.left > 0

    def exception(self) -> Exception | None:
        return self.failure


@pytest.fixture(autouse=True)
def entries(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(query: EndingQuery) -> list[dict[str, Any]]:
        return [make_entry(epoch, plan=PLAN) for epoch in range(query.looks - query.left)]

    monkeypatch.setattr(live, "metrics", read)


def test_each_epoch_is_a_line_until_the_query_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    th.watch(EndingQuery(3, ValueError("no disk\nand a stack")), every="1 ms")
    join, first, *others = capsys.readouterr().out.splitlines()
    assert join == "join ab12: a.x < b.x; Split(2)"
    assert first == (
        "epoch 0, join ab12: tuples 52, late 2, matched 7, seconds 0.8, stored tuples 50, state, MB 0.0, "
        "watermark 1970-01-01T00:00:01.000Z"
    )
    assert [line[:8] for line in others] == ["epoch 1,", "epoch 2,", "failed: "]
    assert others[-1] == "failed: no disk"


def test_a_notebook_has_a_table_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=shown.append)
    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    display = SimpleNamespace(HTML=str, display=lambda *_, display_id: handle)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    th.watch(EndingQuery(2), every="1 ms")
    views = [ElementTree.fromstring(f"<div>{text}</div>") for text in shown]
    facts = [[cell.text for cell in view.iter("td")][:3] for view in views]
    assert facts == [["pairs", "ConsoleTable", "running"], ["pairs", "ConsoleTable", "ended"]]
    assert "<p>join ab12: a.x &lt; b.x; Split(2)</p>" in shown[-1]


def test_the_view_shows_sums_and_the_last_epochs_of_each_join() -> None:
    found = [make_entry(epoch, join=join) for epoch in range(7) for join in ("ab", "<cd>")]
    page = ElementTree.fromstring(f"<div>{render_view({'state': 'running'}, found)}</div>")
    facts = {row[0].text: row[1].text for row in page.find(".//tbody") or ()}
    assert facts == {"state": "running", "epochs": "7", "tuples": "728", "matched": "98"}
    tables = page.findall("table")
    epochs = [[row[0].text for row in table.iter("tr")][1:] for table in tables]
    assert epochs == [["6", "5", "4", "3", "2"]] * 2


def test_a_join_that_is_not_inner_has_found_pairs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"words": {"the condition": "a.x < b.x", KIND: "semi", "the model": "Split(2)"}}
    found = [make_entry(0, plan=plan)]
    monkeypatch.setattr(live, "metrics", lambda _: found)
    th.watch(EndingQuery(1))
    join, epoch, _ = capsys.readouterr().out.splitlines()
    assert join == "join ab12: a.x < b.x; semi; Split(2)"
    assert "late 2, pairs found 7, seconds" in epoch
    page = render_view({"state": "running"}, [*found, make_entry(0, join="cd34")])
    assert page.count("pairs found") == 2  # the sums of the query, and the table of the semi join
    assert page.count("matched") == 1
    assert "1 matches" not in describe_epoch("q", make_entry(matched=1, plan=plan))
    assert "1 pairs found" in describe_epoch("q", make_entry(matched=1, plan=plan))


def test_ctrl_c_ends_the_view_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(live.time, "sleep", interrupt)
    query = EndingQuery(5)
    th.watch(query)
    assert query.left == 4
    assert describe_state(query, is_running=True) == "running"


def test_what_cannot_be_watched() -> None:
    with pytest.raises(th.QueryError, match=r"th\.watch needs a query"):
        th.watch("out/checkpoint")
    with pytest.raises(th.QueryError, match='a number has no unit, so write "2 seconds"'):
        th.watch(EndingQuery(1), every=2)  # type: ignore[arg-type]
