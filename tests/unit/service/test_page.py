"""The page in a real browser: live numbers move, stopped queries say so, and lost connections come back."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.browser import open_browser
from tests.support.contrast import LEAST, find_texts
from tests.support.metric_entries import make_entry
from tests.support.service import HELD, add_epoch, run_service
from thetastream.app.demo.picture import take_screenshot
from thetastream.results.description import Description
from thetastream.results.staged import Origin
from thetastream.runtime.observe.epoch_lines import MetricLines
from thetastream.service.app import HEADERS
from thetastream.stores import ParquetStore

PLAN = {"model": {"name": "biclique", "units": [1, 1]}, "words": {"the condition": "a.x < b.x"}}
END = "9999-12-31T23:59:59.999Z"
TOKEN = "a long secret token"
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as browser:
        from playwright.sync_api import expect

        # The process that answers the first question needs some seconds on a busy machine.
        expect.set_options(timeout=15_000)
        yield browser


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page of a phone. What the browser complains about fails the test."""
    context = browser.new_context(viewport=PHONE)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    page.set_default_timeout(15_000)
    yield page
    context.close()
    assert [text for text in complaints if "Failed to load resource" not in text] == []


@pytest.fixture
def metrics(tmp_path: Path) -> Iterator[MetricLines]:
    lines = MetricLines(tmp_path / "metrics.jsonl")
    lines.write("flights", make_entry(3, plan=PLAN))
    yield lines
    lines.close()


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    store = ParquetStore(str(tmp_path / "pairs"))
    store.describe(HELD)
    add_epoch(store, 0, 1, 2)
    return store


def test_live_numbers_move_and_a_stopped_query_says_so(
    page: Any, metrics: MetricLines, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    with run_service({}, metrics=[tmp_path / "metrics.jsonl"]) as address:
        page.goto(address)
        matches = page.locator("[data-figure=Matches]").first
        expect(matches).to_have_text("7")
        expect(page.locator(".state")).to_have_text("running")
        expect(page.get_by_role("img", name="Biclique(units=(1, 1)) with 2 units")).to_be_visible()
        expect(page.get_by_role("img", name=re.compile("unit 0 a received most, 1.50 times"))).to_be_visible()
        metrics.write("flights", make_entry(4, plan=PLAN, matched=12_345))
        expect(matches).to_have_text("12,345")
        expect(page.locator("[data-figure=Watermark]")).to_have_text("1970-01-01 00:00:01 UTC")
        expect(page.locator("[data-figure=Lag]")).to_have_text("2.50 s")
        # The closing epoch brings nothing. Its figures do not take the place of those before.
        nothing = {"timely": 0, "late": 0, "shed": 0, "newest_us": None, "lag_s": None}
        closing = {"streams": {"a": nothing, "b": nothing}, "matched": 0, "late": 0, "watermark": END}
        metrics.write("flights", make_entry(5, plan=PLAN, **closing))
        expect(page.locator("[data-figure=Watermark]")).to_have_text("end of the input")
        expect(matches).to_have_text("12,345")
        expect(page.locator("[data-figure='Matches since epoch 3']")).to_have_text("12,352")
        expect(page.locator("[data-figure='Tuples since epoch 3']")).to_have_text("104")
        expect(page.locator("[data-figure='Tuples/s']")).to_have_text("65")
        expect(page.locator("[data-figure='Matches/s']")).to_have_text("15,431")
        expect(page.locator("[data-figure='Epoch p50, p95, p99']")).to_have_text("0.80 s, 0.80 s, 0.80 s")
        expect(page.locator("[data-figure='Units busy']")).to_have_text("25 %")
        expect(page.locator("[data-figure='Last checkpoint']")).to_contain_text("ago")
        expect(page.locator("[data-figure=Backlog]")).to_have_text("not reported")
        expect(page.locator(".card header")).to_contain_text("since 2026-01-05 09:30 UTC on")
        # What a stream has brought before is not forgotten in an epoch in which it brings nothing.
        expect(page.get_by_role("row", name=re.compile("^a 60 4 0 2.50 s"))).to_contain_text(
            "1970-01-01 00:00:01.5"
        )
        metrics.write("flights", {"ended": "2026-01-05T09:31:00+00:00"})
        expect(page.locator(".state")).to_have_text("ended")
        expect(page.locator(".card header")).to_contain_text("at 09:31:00 UTC")
        expect(page.locator(".card > .bad")).to_have_count(0)
        error = "PredicateError: [PREDICATE_RAISED] near() raised ValueError"
        metrics.write("flights", {"ended": "2026-01-05T09:31:00+00:00", "error": error})
        expect(page.locator(".state")).to_have_text("failed")
        expect(page.locator(".card > .bad")).to_have_text(error)
        backlog = {"offsets": 1200, "bytes": 2_000_000}
        old = make_entry(6, plan=PLAN, run="r2", backlog=backlog)
        old["streams"]["a"]["lag_s"] = 435_283_200.0
        metrics.write("flights", old)
        expect(page.locator("[data-figure=Lag]")).to_have_text("replayed data")
        expect(page.get_by_text("Event times are more than a day old, as in replayed data.")).to_be_visible()
        expect(page.locator("[data-figure=Backlog]")).to_have_text("1,200 offsets, 2.0 MB")
        expect(page.locator(".card header")).to_contain_text("UTC, restarted once on")
        expect(page.locator(".state")).to_have_text("running")
        metrics.close()
        expect(page.locator(".state")).to_have_text("lost: its program is gone")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"]


def test_a_chart_shows_the_value_of_an_epoch(page: Any, metrics: MetricLines, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    for epoch, tuples in ((4, 10), (5, 20)):
        streams = {"a": {"timely": tuples, "late": 0, "shed": 0, "newest_us": None, "lag_s": None}}
        metrics.write("flights", make_entry(epoch, plan=PLAN, streams=streams))
    with run_service({}, metrics=[tmp_path / "metrics.jsonl"]) as address:
        page.goto(address)
        chart = page.get_by_role("group", name="input in tuples per second; arrow keys choose an epoch")
        chart.focus()
        page.keyboard.press("ArrowLeft")
        expect(chart.locator(".readout")).to_have_text("epoch 5, 09:30:00 UTC: 25")
        page.keyboard.press("ArrowLeft")
        expect(chart.locator(".readout")).to_have_text("epoch 4, 09:30:00 UTC: 13")
        # A new epoch changes neither the focus nor the epoch that is chosen.
        metrics.write("flights", make_entry(6, plan=PLAN))
        expect(page.locator("[data-figure=Epoch]")).to_have_text("6")
        expect(chart.locator(".readout")).to_have_text("epoch 4, 09:30:00 UTC: 13")
        expect(chart).to_be_focused()
        page.keyboard.press("Escape")
        expect(chart.locator(".readout")).to_have_text("")
        box = chart.locator("svg").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2 - 80, box["y"] + box["height"] / 2)
        expect(chart.locator(".readout")).to_contain_text("epoch 4,")


def test_findings_and_the_command_that_scales(page: Any, metrics: MetricLines, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    units = [{"unit": n, "received": 2_000 if n == 1 else 10, "held": 5, "state_bytes": 9} for n in range(4)]
    model = {"name": "biclique", "units": [2, 2]}
    control = {
        "membership": [{"since": 0, "model": model, "slots": [0, 1, 2, 3]}],
        "coming": None,
        "leaving": {},
        "outcomes": {},
        "shed_factor": 0.0,
    }
    for epoch in range(4, 26):
        metrics.write("flights", make_entry(epoch, units=units, control=control))
    with run_service({}, metrics=[tmp_path / "metrics.jsonl"]) as address:
        page.goto(address)
        expect(page.locator(".finding")).to_contain_text("unit 1 of query flights received")
        expect(page.get_by_text("thetastream scale CHECKPOINT --units 2,2")).to_be_visible()
        expect(page.get_by_role("img", name=re.compile("unit 1 a received most, 3.94 times"))).to_be_visible()


def test_pairs_and_answers_of_a_join_have_names(page: Any, metrics: MetricLines, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    second = {**PLAN, "words": {**PLAN["words"], "the units": "the second units"}}
    metrics.write("flights", make_entry(3, plan=second, join="cd34"))
    with run_service({}, metrics=[tmp_path / "metrics.jsonl"]) as address:
        page.goto(address)
        expect(
            page.get_by_text("Pairs, before the part of the condition that Spark evaluates")
        ).to_be_visible()
        expect(page.get_by_text("Answers, from the pairs that pass the whole condition")).to_be_visible()
        expect(page.locator("[data-figure='Pairs found']")).to_have_text(["7", "7"])
        expect(page.locator("[data-figure=Matches]")).to_have_count(0)


def test_a_join_that_is_not_inner_has_found_pairs(page: Any, metrics: MetricLines, tmp_path: Path) -> None:
    """The page called the pairs that a nearest join ranks its matches, as if they were results."""
    from playwright.sync_api import expect

    plan = {**PLAN, "words": {**PLAN["words"], "the kind of join": "Nearest(k=1, by='a.x - b.x')"}}
    metrics.write("flights", make_entry(4, plan=plan))
    with run_service({}, metrics=[tmp_path / "metrics.jsonl"]) as address:
        page.goto(address)
        expect(page.locator("[data-figure='Pairs found']")).to_have_text("7")
        expect(page.locator("[data-figure='Pairs found since epoch 3']")).to_have_text("14")
        expect(page.locator("[data-figure=Matches]")).to_have_count(0)
        expect(page.get_by_role("heading", name="Output, pairs found per second")).to_be_visible()
        expect(page.locator(".words")).to_contain_text("kind of joinNearest(k=1, by='a.x - b.x')")


def test_a_lookup_in_a_table_is_shown(page: Any, tmp_path: Path) -> None:
    """The page left the join out, because a lookup has no model. Its tuples belong to no stream of units."""
    from playwright.sync_api import expect

    words = {"the condition": "a.x < t.low", "the kind of join": "left"}
    own = {"plan": {"words": words, "lookup": ["a", "t"]}, "streams": {}, "probed": 40}
    lines = MetricLines(tmp_path / "metrics.jsonl")
    for epoch in range(121):
        lines.write("flights", make_entry(epoch, tables={"t": {"version": 1}}, **own))
    with run_service({}, metrics=[tmp_path / "metrics.jsonl"]) as address:
        page.goto(address)
        expect(page.locator("[data-figure='Pairs found']")).to_have_text("7")
        expect(page.locator("[data-figure='Tuples/s']")).to_have_text("50")
        # The page shows 120 epochs, and its sums have all of them.
        expect(page.locator("[data-figure='Pairs found since the start']")).to_have_text("847")
        expect(page.locator("[data-figure=Matches]")).to_have_count(0)
        expect(page.locator(".words")).to_contain_text("kind of joinleft")
        expect(page.get_by_text("Each tuple is looked up in an index of the table.")).to_be_visible()
    lines.close()


def test_a_question_in_sql_is_answered_by_a_table_and_a_plot(page: Any, store: ParquetStore) -> None:
    from playwright.sync_api import expect

    with run_service({"pairs": store}) as address:
        page.goto(address)
        box = page.get_by_label("Question to pairs in SQL")
        form = page.locator("form.question")
        box.fill("SELECT id, 2 * id AS twice FROM results ORDER BY id")
        page.keyboard.press("Control+Enter")
        expect(form.get_by_role("status")).to_contain_text("2 rows in")
        expect(form.get_by_role("cell", name="4", exact=True)).to_be_visible()
        expect(
            form.get_by_role("img", name="2 results of the answer of pairs: twice over id")
        ).to_be_visible()
        box.fill("SELECT idd FROM results")
        form.get_by_role("button", name="Ask").click()
        expect(form.get_by_role("status")).to_contain_text("idd")
        expect(form.get_by_role("cell")).to_have_count(0)


def test_a_dropped_connection_comes_back(page: Any, metrics: MetricLines, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    files = [tmp_path / "metrics.jsonl"]
    with run_service({}, metrics=files) as address:
        page.goto(address)
        expect(page.get_by_role("status")).to_have_text("Connected")
    expect(page.get_by_role("status")).to_contain_text("The page tries again.")
    expect(page.locator("[data-figure=Matches]")).to_have_text("7")
    metrics.write("flights", make_entry(4, matched=8))
    with run_service({}, port=int(address.rpartition(":")[2]), metrics=files):
        expect(page.get_by_role("status")).to_have_text("Connected")
        expect(page.locator("[data-figure=Matches]")).to_have_text("8")


def test_the_keyboard_chooses_two_columns_of_a_plot(page: Any, store: ParquetStore) -> None:
    from playwright.sync_api import expect

    with run_service({"pairs": store}) as address:
        page.goto(address)
        across = page.get_by_label("Across")
        expect(across).to_have_value("result_time")
        expect(page.get_by_role("img", name="2 results of pairs: id over result_time")).to_be_visible()
        expect(page.locator(".dot")).to_have_count(2)
        across.focus()
        page.keyboard.press("ArrowUp")
        expect(across).to_have_value("id")
        add_epoch(store, 1, 7, 8, 9)
        expect(page.locator(".dot")).to_have_count(3)
        expect(across).to_have_value("id")
        expect(across).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, {"width": 1280, "height": 900}], ids=["phone", "desk"])
def test_every_text_can_be_read(
    page: Any, metrics: MetricLines, store: ParquetStore, tmp_path: Path, scheme: str, size: dict[str, int]
) -> None:
    from playwright.sync_api import expect

    metrics.write("late", make_entry(4, plan=PLAN))
    metrics.write("late", {"ended": "2026-01-05T09:31:00+00:00", "error": "it has failed"})
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme)
    with run_service({"pairs": store}, metrics=[tmp_path / "metrics.jsonl"]) as address:
        page.goto(address)
        expect(page.locator(".dot")).to_have_count(2)
        expect(page.locator(".card > .bad")).to_have_text("it has failed")
        texts = find_texts(page)
        assert len(texts) > 100
        assert [text for text in texts if text["contrast"] < LEAST] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_a_plot_begins_with_a_measure(page: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    whole, time = pa.int64(), pa.timestamp("us", "UTC")
    fields = [
        ("symbol", whole),
        ("at", time),
        ("number", whole),
        ("price", pa.float64()),
        ("result_time", time),
    ]
    held = Description(pa.schema(fields), "result_time", ("symbol",))
    store = ParquetStore(str(tmp_path / "trades"))
    store.describe(held)
    stage = store.open_stage(Origin("q", 0, "0"), held)
    stage.add(pa.record_batch([[1, 2], [0, 1], [7, 8], [1.5, 2.0], [0, 1]], schema=held.schema))
    staged = stage.close()
    assert staged is not None
    store.commit("q", 0, [staged])
    with run_service({"trades": store}) as address:
        page.goto(address)
        expect(page.get_by_role("img", name="2 results of trades: price over result_time")).to_be_visible()


def test_a_service_with_a_token_asks_for_it(page: Any, metrics: MetricLines, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    with run_service({}, metrics=[tmp_path / "metrics.jsonl"], token=TOKEN) as address:
        page.goto(address)
        page.get_by_label("Token of the service").fill("a wrong secret token")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_have_text("The service needs its token")
        page.get_by_label("Token of the service").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator(".state")).to_have_text("running")


def test_the_browser_may_load_and_run_nothing_else(page: Any, store: ParquetStore) -> None:
    with run_service({"pairs": store}) as address:
        answer = page.goto(address)
        assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
        script = page.request.get(f"{address}/page/main.js")
        assert script.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
        assert page.request.get(f"{address}/page/../app.py").status == 404


@pytest.mark.slow
def test_the_demo_takes_a_picture_of_the_page(
    browser: Any, metrics: MetricLines, store: ParquetStore, tmp_path: Path
) -> None:
    target = tmp_path / "page.png"
    assert take_screenshot(Path(store.path), tmp_path / "metrics.jsonl", target)
    assert target.read_bytes().startswith(b"\x89PNG")
    assert target.stat().st_size > 10_000


def test_without_a_browser_there_is_no_picture(
    metrics: MetricLines, store: ParquetStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    assert not take_screenshot(Path(store.path), tmp_path / "metrics.jsonl", tmp_path / "page.png")
