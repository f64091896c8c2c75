"""Metrics of joins through OpenTelemetry, for operators who already run its collector.

Each metric of ``thetastream.runtime.observe.exposition`` is an observable instrument: an exporter asks it
for its samples. ``thetastream_late_tuples_total`` is the counter ``thetastream.late_tuples``, from which a
collector makes the name in Prometheus again.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from thetastream.core.errors import SessionError
from thetastream.runtime.observe.exposition import ALL, COUNTER, PREFIX, Exposition, Metric

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

INSTALL = "pip install 'thetastream[otel]'"
OTLP: Final = "otlp"


def offer(exposition: Exposition, provider: "MeterProvider | str") -> Callable[[], None]:
    """Offer the samples of ``exposition`` to OpenTelemetry; return what ends it.

    Parameters
    ----------
    exposition : Exposition
    provider : MeterProvider or "otlp"
        Where the instruments are made. ``"otlp"`` makes a provider that sends to a collector, as the
        environment variables of OpenTelemetry say.

    Raises
    ------
    SessionError
        OPEN_TELEMETRY if the package is missing, or if ``provider`` is something else.
    """
    try:
        from opentelemetry.metrics import MeterProvider

        is_own = provider == OTLP
        used = _make_provider() if is_own else provider
    except ImportError as error:
        raise SessionError("OPEN_TELEMETRY", f"{error.name} is needed and missing: {INSTALL}") from error
    if not isinstance(used, MeterProvider):
        raise SessionError(
            "OPEN_TELEMETRY", f"open_telemetry must be a MeterProvider or {OTLP!r}; got {provider!r}"
        )
    is_ended: list[bool] = []
    meter = used.get_meter("thetastream")
    for metric in ALL:
        name = f"{PREFIX}.{metric.name.removeprefix(f'{PREFIX}_').removesuffix('_total')}"
        is_counter = metric.kind == COUNTER
        make = meter.create_observable_counter if is_counter else meter.create_observable_gauge
        make(name, [partial(_observe, exposition, metric, is_ended)], description=metric.meaning)

    def end() -> None:
        if is_own:
            used.shutdown()  # type: ignore[attr-defined]  # It sends the last samples.
        is_ended.append(True)

    return end


def _make_provider() -> Any:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])


def _observe(
    exposition: Exposition, metric: Metric, is_ended: list[bool], _: "CallbackOptions"
) -> "Iterator[Observation]":
    """Yield the samples of a metric. A provider cannot forget an instrument, so an ended one has none."""
    from opentelemetry.metrics import Observation

    if not is_ended:
        for labels, value in exposition.read(metric):
            yield Observation(value, dict(labels))
