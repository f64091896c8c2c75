"""Metrics for Prometheus and as JSON lines; and the alert rules and the dashboard, which name them."""

import json
import re
import runpy
import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.support.metric_entries import make_entry
from thetastream.core.errors import SessionError
from thetastream.runtime.observe import metrics_endpoint
from thetastream.runtime.observe.exposition import ALL, Exposition
from thetastream.service.running import MetricsFile
from thetastream.spark.observe import export
from thetastream.spark.observe.listener import Listener

ROOT = Path(__file__).parents[3]
NAMES = {metric.name for metric in ALL}


def read(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_counters_add_up_and_gauges_are_the_last() -> None:
    exposition = Exposition()
    assert exposition.write() == ""
    exposition.add("q", make_entry(3))
    exposition.add("q", make_entry(4, held=60, waiting=5))
    found = read(exposition.write())
    labels = 'query="q",join="ab12"'
    assert found[f"thetastream_epochs_total{{{labels}}}"] == 2
    assert found[f'thetastream_tuples_total{{{labels},stream="a"}}'] == 60
    assert found[f'thetastream_late_tuples_total{{{labels},stream="a"}}'] == 4
    assert found[f"thetastream_held_tuples{{{labels}}}"] == 60
    assert found[f"thetastream_waiting_tuples{{{labels}}}"] == 5
    assert found[f'thetastream_lag_seconds{{{labels},stream="a"}}'] == 2.5
    assert f'thetastream_lag_seconds{{{labels},stream="b"}}' not in found
    assert found[f'thetastream_event_time_seconds{{{labels},stream="a"}}'] == 1.5
    assert found[f"thetastream_watermark_seconds{{{labels}}}"] == 1
    assert found[f'thetastream_epoch_seconds{{{labels},phase="addBatch"}}'] == 0.5
    assert found[f"thetastream_imbalance{{{labels}}}"] == 1.5
    assert found['thetastream_query_running{query="q"}'] == 1
    exposition.end("q")
    found = read(exposition.write())
    assert found['thetastream_query_running{query="q"}'] == 0
    assert found[f"thetastream_epochs_total{{{labels}}}"] == 2
    assert not any(name.startswith("thetastream_held_tuples") for name in found)
    assert found['thetastream_query_failed{query="q"}'] == 0
    exposition.end("q", is_failed=True)
    assert read(exposition.write())['thetastream_query_failed{query="q"}'] == 1
    exposition.add("q", make_entry(5))
    assert read(exposition.write())['thetastream_query_failed{query="q"}'] == 0


def test_versions_of_tables_are_gauges() -> None:
    tables = {
        "prices": {"version": 4, "rows": 70, "age_s": 2.5, "refused": None},
        "rates": {"version": 1, "rows": 0, "age_s": 60.0, "refused": "TABLE_KEYS"},
    }
    exposition = Exposition()
    exposition.add("q", make_entry(3, tables=tables))
    found = read(exposition.write())
    labels = 'query="q",join="ab12"'
    for alias, *values in (("prices", 4, 70, 2.5, 0), ("rates", 1, 0, 60, 1)):
        for name, value in zip(("version", "rows", "age_seconds", "refused"), values, strict=True):
            assert found[f'thetastream_table_{name}{{{labels},table="{alias}"}}'] == value


def test_the_text_has_the_form_that_prometheus_reads() -> None:
    exposition = Exposition()
    exposition.add('a "name"\\\n', make_entry())
    sample = re.compile(r'[a-z_]+\{([a-z]+="(\\[\\"n]|[^"\\\n])*",?)+\} -?[0-9.e+-]+')
    comment = re.compile(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (counter|gauge))")
    lines = exposition.write().splitlines()
    assert len(lines) > 50
    for line in lines:
        assert (comment if line.startswith("#") else sample).fullmatch(line), line
    kinds = [line.split()[2:] for line in lines if line.startswith("# TYPE")]
    assert len({name for name, _ in kinds}) == len(kinds)
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in kinds)


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    """The listener of a session that does not exist."""
    one = Listener()
    monkeypatch.setattr(export, "watch_queries", lambda spark: one)
    monkeypatch.setattr(export, "refuse_other_sessions", lambda function, spark: None)
    return one


def test_the_endpoint_and_the_lines(listener: Listener, tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    running = export.export_metrics(None, port=0, json_lines=file)  # type: ignore[arg-type]
    assert running.url is not None
    for each in listener.exports:
        each.add("q", make_entry(3))
        each.add("q", make_entry(4))
    with urlopen(running.url) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert 'thetastream_epochs_total{query="q",join="ab12"} 2' in answer.read().decode()
    with pytest.raises(HTTPError, match="404"):
        urlopen(running.url.replace("/metrics", "/"))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["query"], line["epoch"], line["matched"]) for line in lines] == [("q", 3, 7), ("q", 4, 7)]
    with pytest.raises(SessionError, match=rf"METRICS_PORT.*127\.0\.0\.1:{running.port}"):
        export.export_metrics(None, port=running.port)  # type: ignore[arg-type]
    running.stop()
    running.stop()
    assert (listener.exports, running.url) == ([], None)
    with pytest.raises(SessionError, match="METRICS_FILE"):
        export.export_metrics(None, port=None, json_lines=tmp_path / "none" / "file")  # type: ignore[arg-type]


def test_half_requests_take_no_threads_and_keep_nobody_out(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = export.export_metrics(None, port=0)  # type: ignore[arg-type]
    assert running.url is not None
    before = threading.active_count()
    with ExitStack() as stack:
        half = []
        for _ in range(100):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", running.port or 0)))
            with suppress(OSError):
                one.sendall(b"GET /metrics HTTP/1.1\r\n")
            half.append(one)
        with urlopen(running.url, timeout=5) as answer:
            assert answer.status == 200
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert threading.active_count() == before
    running.stop()
    # A request that does not arrive in time is over.
    monkeypatch.setattr(metrics_endpoint, "PATIENCE_S", 0.2)
    running = export.export_metrics(None, port=0)  # type: ignore[arg-type]
    with socket.create_connection(("127.0.0.1", running.port or 0)) as one:
        one.settimeout(5)
        one.sendall(b"GET")
        assert one.recv(1) == b""
    running.stop()


@pytest.mark.parametrize("host", ["evil.example", "[::1]evil.com", "127.0.0.1.evil.com", None])
def test_the_endpoint_of_this_machine_answers_requests_that_name_it(
    listener: Listener, host: str | None
) -> None:
    running = export.export_metrics(None, port=0)  # type: ignore[arg-type]
    for header, status in ((host, b"403"), ("localhost:9464", b"200"), ("[::1]", b"200")):
        with socket.create_connection(("127.0.0.1", running.port or 0)) as one:
            one.settimeout(5)
            named = "" if header is None else f"Host: {header}\r\n"
            one.sendall(f"GET /metrics HTTP/1.1\r\n{named}\r\n".encode())
            assert one.recv(12) == b"HTTP/1.1 " + status
    running.stop()


@pytest.mark.parametrize(
    ("report", "exception", "failed"),
    [
        (None, "a.b.SparkException: [TASK] lost\n\tat java", ["orders"]),
        ({"numInputRows": 0}, "a.b.SparkException: [TASK] lost", ["orders"]),
        ({"numInputRows": 7}, "a.b.SparkException: [TASK] lost", []),  # a query without a join
        (None, None, []),
    ],
)
def test_a_query_that_fails_before_its_first_epoch_is_exported(
    listener: Listener,
    tmp_path: Path,
    report: dict[str, object] | None,
    exception: str | None,
    failed: list[str],
) -> None:
    file = tmp_path / "metrics.jsonl"
    running = export.export_metrics(None, port=0, json_lines=file)  # type: ignore[arg-type]
    listener.begin("id", "run", "orders")
    if report is not None:
        listener.read(json.dumps({"runId": "run", "id": "id", "name": "orders", **report}))
    listener.forget("run", exception)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["query"], line["error"]) for line in lines] == [
        (query, "SparkException: [TASK] lost") for query in failed
    ]
    assert {name: state for name, (state, _) in MetricsFile(file).read().items()} == dict.fromkeys(
        failed, "failed"
    )
    assert running.url is not None
    with urlopen(running.url) as answer:
        assert ('thetastream_query_failed{query="orders"} 1' in answer.read().decode()) == bool(failed)
    running.stop()


# Files for operators


def test_the_table_of_the_docs_has_every_metric() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(thetastream_\w+)` \| (\w+) \| .* \| (.*) \|$", page, re.MULTILINE)
    assert rows == [(metric.name, metric.kind, metric.meaning) for metric in ALL]


def test_alert_rules_name_metrics_and_labels_that_exist() -> None:
    rules = (ROOT / "ops" / "alerts.yml").read_text().split("- alert: ")[1:]
    assert len(rules) >= 8
    for rule in rules:
        expression = re.search(r"expr: (.*)", rule)
        assert expression is not None
        metrics = set(re.findall(r"thetastream_\w+", rule))
        assert metrics, rule
        assert metrics <= NAMES, metrics - NAMES
        for key in ("for:", "severity:", "summary:", "action:"):
            assert key in rule, rule
        by_stream = {metric.name for metric in ALL if "by stream" in metric.meaning}
        in_expression = re.findall(r"thetastream_\w+", expression[1])
        if "$labels.stream" in rule:
            assert in_expression[0] in by_stream, rule


def test_the_dashboard_is_the_one_that_its_script_writes() -> None:
    script = runpy.run_path(str(ROOT / "ops" / "make_dashboard.py"))
    text = (ROOT / "ops" / "dashboard.json").read_text()
    assert text == script["write"](), "run python ops/make_dashboard.py"
    panels = json.loads(text)["panels"]
    for panel in panels:
        (target,) = panel["targets"]
        assert set(re.findall(r"thetastream_\w+", target["expr"])) <= NAMES, panel["title"]
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
