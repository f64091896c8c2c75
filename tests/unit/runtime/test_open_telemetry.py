"""Metrics through OpenTelemetry: into a provider of the user, and to a collector by HTTP."""

import gzip
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.support.metric_entries import make_entry
from thetastream.core.errors import SessionError
from thetastream.runtime.observe.exposition import ALL
from thetastream.runtime.observe.open_telemetry import OTLP
from thetastream.spark.observe import export
from thetastream.spark.observe.listener import Listener


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    """The listener of a session that does not exist."""
    one = Listener()
    monkeypatch.setattr(export, "watch_queries", lambda spark: one)
    monkeypatch.setattr(export, "refuse_other_sessions", lambda function, spark: None)
    return one


def read(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, str], float]]]:
    found = reader.get_metrics_data()
    if found is None:
        return {}
    metrics = found.resource_metrics[0].scope_metrics[0].metrics
    return {
        metric.name: [(dict(point.attributes or {}), point.value) for point in metric.data.data_points]
        for metric in metrics
    }


def test_a_provider_reads_the_samples(listener: Listener) -> None:
    reader = InMemoryMetricReader()
    running = export.export_metrics(None, port=None, open_telemetry=MeterProvider([reader]))  # type: ignore[arg-type]
    for each in listener.exports:
        each.add("q", make_entry(3))
        each.add("q", make_entry(4))
    found = read(reader)
    join = {"query": "q", "join": "ab12"}
    assert found["thetastream.late_tuples"] == [
        ({**join, "stream": "a"}, 4.0),
        ({**join, "stream": "b"}, 0.0),
    ]
    assert found["thetastream.held_tuples"] == [(join, 50.0)]
    assert found["thetastream.query_running"] == [({"query": "q"}, 1.0)]
    names = {metric.name.removesuffix("_total").replace("thetastream_", "thetastream.") for metric in ALL}
    assert set(found) <= names
    running.stop()
    running.stop()
    assert read(reader) == {}


@pytest.fixture
def collector() -> Iterator[tuple[str, list[ExportMetricsServiceRequest]]]:
    """A collector that keeps what it receives."""
    received: list[ExportMetricsServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            received.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Write no line for each request."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", received
    server.shutdown()
    server.server_close()


def test_a_collector_receives_the_samples(
    listener: Listener,
    collector: tuple[str, list[ExportMetricsServiceRequest]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, received = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    running = export.export_metrics(None, port=None, open_telemetry=OTLP)  # type: ignore[arg-type]
    for each in listener.exports:
        each.add("q", make_entry(3))
    running.stop()  # It sends what has not been sent.
    metrics = received[-1].resource_metrics[0].scope_metrics[0].metrics
    (late,) = (metric for metric in metrics if metric.name == "thetastream.late_tuples")
    assert late.sum.is_monotonic
    assert sum(point.as_double for point in late.sum.data_points) == 2


def test_what_cannot_be_used_is_refused(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SessionError, match=r"OPEN_TELEMETRY.*MeterProvider or 'otlp'; got 'http://x'"):
        export.export_metrics(None, port=None, open_telemetry="http://x")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(SessionError, match=r"OPEN_TELEMETRY.*pip install 'thetastream\[otel\]'"):
        export.export_metrics(None, port=None, open_telemetry=OTLP)  # type: ignore[arg-type]
    assert listener.exports == []
