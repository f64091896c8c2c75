"""Hands the counters of joins to operators: for Prometheus, as JSON lines, and by OpenTelemetry."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import SparkSession

from thetastream.core.arguments import describe_given, read_path, refuse_non_text
from thetastream.core.errors import SessionError
from thetastream.runtime.observe.epoch_lines import LOG, MetricLines
from thetastream.runtime.observe.exposition import CONTENT_TYPE, Exposition
from thetastream.runtime.observe.metrics_endpoint import MetricsEndpoint
from thetastream.runtime.observe.open_telemetry import offer
from thetastream.spark.arguments import refuse_other_sessions
from thetastream.spark.observe.listener import watch_queries

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider


def export_metrics(
    spark: SparkSession,
    *,
    port: int | None = 9464,
    host: str = "127.0.0.1",
    json_lines: str | os.PathLike[str] | None = None,
    open_telemetry: "MeterProvider | Literal['otlp'] | None" = None,
) -> "MetricsExport":
    """Export the metrics of the joins of a session, until the program ends or ``stop`` is called.

    Parameters
    ----------
    spark : SparkSession
    port : int, optional
        The port at which Prometheus reads ``http://host:port/metrics``. 0 takes a free one, which the result
        names. None opens no endpoint.
    host : str
        The address at which the endpoint listens. It has no password, so it listens to this machine only
        unless you name another address.
    json_lines : path, optional
        A file to which one line is added for each epoch and join: the entry of ``th.metrics``, ``query`` and
        ``host``, this machine. A line with ``ended``, a time, says that a query has ended. ``thetastream
        serve --metrics`` shows the file as a page.
    open_telemetry : MeterProvider or "otlp", optional
        The provider of OpenTelemetry in which the metrics become observable instruments. ``"otlp"`` sends
        them to a collector by HTTP: to ``http://localhost:4318`` every 60 s, unless the environment variables
        ``OTEL_EXPORTER_OTLP_ENDPOINT`` and ``OTEL_METRIC_EXPORT_INTERVAL`` say otherwise. It needs
        ``pip install 'thetastream[otel]'``.

    Returns
    -------
    MetricsExport
        It has ``port``, ``url`` and ``stop()``.

    Raises
    ------
    SessionError
        METRICS_PORT if the port cannot be used; METRICS_FILE if the file cannot be written; OPEN_TELEMETRY if
        its package is missing or the provider is something else.

    Examples
    --------
    >>> import thetastream as th
    >>> export = th.export_metrics(spark, json_lines="metrics.jsonl")  # doctest: +SKIP
    """
    refuse_other_sessions("th.export_metrics", spark)
    if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 1 << 16):
        what = f"port must be a number from 0 to {(1 << 16) - 1}, or None"
        raise SessionError("METRICS_PORT", f"{what}, not {describe_given(port)}")
    refuse_non_text(host, "host", 'host="127.0.0.1"')
    file = None if json_lines is None else Path(read_path(json_lines, "json_lines", kind="a file"))
    return MetricsExport(spark, port, host, file, open_telemetry)


class MetricsExport:
    """A running export of metrics."""

    def __init__(
        self,
        spark: SparkSession,
        port: int | None,
        host: str,
        file: Path | None,
        open_telemetry: "MeterProvider | str | None",
    ) -> None:
        self._exposition = Exposition()
        self._end_telemetry = None if open_telemetry is None else offer(self._exposition, open_telemetry)
        self._lines: MetricLines | None = None
        self._host: str = host
        self._server: MetricsEndpoint | None = None
        if file is not None:
            try:
                self._lines = MetricLines(file)
            except OSError as error:
                raise SessionError(
                    "METRICS_FILE", f"{file} must be a file that can be written: {error}"
                ) from None
        if port is not None:
            self._server = _listen(host, port, self._exposition)
        self._listener = watch_queries(spark)
        self._listener.exports.append(self)

    @property
    def port(self) -> int | None:
        """The port of the endpoint; None without one."""
        return None if self._server is None else self._server.port

    @property
    def url(self) -> str | None:
        """The address that Prometheus reads; None without an endpoint."""
        return None if self._server is None else f"http://{self._host}:{self.port}/metrics"

    def add(self, query: str, entry: Mapping[str, Any]) -> None:
        """Take the counters of one epoch of one join."""
        self._exposition.add(query, entry)
        self._write_line(query, entry)

    def end(self, query: str, error: str | None) -> None:
        """Take note that a query has ended, by itself or by an error."""
        self._exposition.end(query, is_failed=error is not None)
        self._write_line(query, {"ended": datetime.now(UTC).isoformat(), "error": error})

    def _write_line(self, query: str, entry: Mapping[str, Any]) -> None:
        if self._lines is not None:
            try:
                self._lines.write(query, entry)
            except OSError as error:
                LOG.warning("a line of query %s is missing in its file of metrics: %s", query, error)

    def stop(self) -> None:
        """End the export, and close the endpoint."""
        if self in self._listener.exports:
            self._listener.exports.remove(self)
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._lines is not None:
            self._lines.close()
            self._lines = None
        if self._end_telemetry is not None:
            self._end_telemetry()
            self._end_telemetry = None


def _listen(host: str, port: int, exposition: Exposition) -> MetricsEndpoint:
    try:
        return MetricsEndpoint(host, port, exposition.write, CONTENT_TYPE)
    except (OSError, OverflowError) as error:
        what = f"metrics cannot be offered at {host}:{port}: {error}"
        raise SessionError("METRICS_PORT", f"{what}; give another port, or port=0 for any") from None
