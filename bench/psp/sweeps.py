"""What is measured: one setting varied at a time, Ring, ATR and CTR side by side."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np

from bench.figures.figure import Check, Measured, Row, Verdict, yes_or_no
from bench.psp.images import Workload
from bench.psp.replay import models, replay
from bench.psp.streamed import Spark
from thetastream.models import ATR, CTR, Biclique, Multiway, Ring
from thetastream.models.base import Model
from thetastream.windows import Rows

NODES = 4


@dataclass(frozen=True)
class Setup:
    """How large, and what runs queries in Spark."""

    base: Workload
    many: Workload
    """For more streams, whose results would grow beyond measure."""
    doubling: Workload
    selectivities: tuple[float, ...]
    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    sizes: tuple[int, ...]
    spark_nodes: tuple[int, ...]
    repeat: int
    announce: Callable[[str], None]
    spark: Spark
    scale: float
    seed: int


def row_of(name: str, model: Multiway, work: Workload, **setting: Any) -> tuple[Row, Check]:
    """The figures of a run, and whether it found what it must."""
    run = replay(work, model)
    held, size = run.held(), run.held_bytes()
    full = int(np.argmax(held.sum(axis=1)))
    row = {
        "model": name,
        "setting": repr(model),
        **setting,
        "response_epochs": run.response_epochs,
        "response_ms": run.response_ms,
        "busy_ms": run.busy_ms,
        "tuples_held": int(held[full].sum()),
        "tuples_largest": int(held.max()),
        "mb_held": float(size.sum(axis=1).max()) / 1e6,
        "mb_largest": float(size.max()) / 1e6,
        "copies": run.total("stored") / (work.streams * work.tuples),
        "in_flight": max(epoch.in_flight for epoch in run.epochs),
        "mb_in_flight": max(epoch.in_flight_bytes for epoch in run.epochs) / 1e6,
        "probed": run.total("probed"),
        "candidates": run.total("candidates"),
        "results": len(run.found),
    }
    what = ", ".join(f"{key} {value}" for key, value in setting.items())
    return row, Check(f"{name}, {what}", run.expected, len(run.found))


def sweep(
    setup: Setup, name: str, works: Iterable[tuple[Any, Workload, int]]
) -> tuple[list[Row], list[Check]]:
    """Rows of all models for each value of a setting."""
    rows, checks = [], []
    for value, work, nodes in works:
        setup.announce(f"{name} {value}")
        for label, model in models(work, nodes).items():
            row, check = row_of(label, model, work, **{name: value})
            rows.append(row)
            checks.append(check)
    return rows, checks


def by_nodes(setup: Setup) -> tuple[list[Row], list[Check]]:
    return sweep(setup, "nodes", [(n, setup.base, n) for n in setup.lengths])


def by_selectivity(setup: Setup) -> tuple[list[Row], list[Check]]:
    works = [(s, replace(setup.base, selectivity=s), NODES) for s in setup.selectivities]
    return sweep(setup, "selectivity", works)


def by_streams(setup: Setup) -> tuple[list[Row], list[Check]]:
    return sweep(setup, "streams", [(m, replace(setup.many, streams=m), NODES) for m in setup.counts])


def by_pixels(setup: Setup) -> tuple[list[Row], list[Check]]:
    return sweep(setup, "pixels", [(n, replace(setup.base, pixels=n), NODES) for n in setup.sizes])


def grown(rows: list[Row], by: str, figure: str) -> dict[str, float]:
    """Per model, the figure at the last value of ``by`` over that at the first."""
    values = sorted({row[by] for row in rows})
    at = {(row["model"], row[by]): row[figure] for row in rows}
    return {name: at[name, values[-1]] / at[name, values[0]] for name in ("Ring", "ATR", "CTR")}


def at(rows: list[Row], by: str, value: Any, figure: str) -> dict[str, float]:
    """Per model, a figure at one value."""
    return {row["model"]: row[figure] for row in rows if row[by] == value}


def spelled(found: dict[str, float], pattern: str = "{:.2f}") -> str:
    """
    >>> spelled({"Ring": 1, "ATR": 2.5})
    'Ring 1.00, ATR 2.50'
    """
    return ", ".join(f"{name} {pattern.format(value)}" for name, value in found.items())


def response_by_nodes(setup: Setup) -> Measured:
    rows, checks = by_nodes(setup)
    grows = grown(rows, "nodes", "response_ms")
    last = at(rows, "nodes", setup.lengths[-1], "response_ms")
    fewest = {name: 1 / ratio for name, ratio in grows.items()}
    epochs = at(rows, "nodes", setup.lengths[-1], "response_epochs")
    text = (
        f"{setup.lengths[-1]} nodes instead of one answer sooner by factors of {spelled(fewest)}; a result "
        f"then takes {spelled(epochs, '{:.0f}')} epoch(s), whose busiest nodes take "
        f"{spelled(last, '{:.0f} ms')}: ATR has no hops between epochs, and pays for it in state"
    )
    ratio = fewest["Ring"]
    return Measured(rows, Verdict(yes_or_no(ratio > 1.5, ratio > 1), ratio, text), checks, given(setup.base))


def state_by_nodes(setup: Setup) -> Measured:
    rows, checks = by_nodes(setup)
    copies = at(rows, "nodes", setup.lengths[-1], "copies")
    grows = grown(rows, "nodes", "mb_held")
    ratio = grows["Ring"]
    ring = {row["copies"] for row in rows if row["model"] == "Ring"}
    text = (
        f"with {setup.lengths[-1]} nodes a tuple is stored {spelled(copies)} times, and bytes held at the "
        f"peak are those of one node times {spelled(grows)}; the ring stores each tuple once at any length"
    )
    holds = ring == {1.0} and ratio < 1.2 and min(grows["ATR"], grows["CTR"]) > 1.5
    return Measured(
        rows,
        Verdict(yes_or_no(holds), copies["ATR"] / copies["Ring"], text),
        checks,
        given(setup.base),
    )


def state_by_overlap(setup: Setup) -> Measured:
    """Segments of a fraction of the window; copies of segments."""
    work, rows, checks = setup.base, [], []
    settings: list[tuple[str, float, Multiway]] = [("Ring", 0.0, Ring(NODES, Rows(4)))]
    for overlap in (0.25, 0.5, 1, 2):
        segment = timedelta(microseconds=round(work.window_us / overlap))
        settings.append(("ATR", overlap, ATR(NODES, segment)))
    segment = timedelta(microseconds=work.window_us // 6)
    settings += [("CTR", float(copies), CTR(NODES, copies, segment)) for copies in (1, 2, 3, 4)]
    setup.announce("overlaps and copies")
    for label, value, model in settings:
        row, check = row_of(label, model, work, overlap=value)
        # The master's tuples lie on one node, the slaves' on one for each segment that a window touches.
        wanted = (1 + (work.streams - 1) * min(NODES, 1 + 2 * value)) / work.streams
        row["formula"] = {"Ring": 1.0, "ATR": wanted, "CTR": value}[label]
        rows.append(row)
        checks.append(check)
    copies = {
        name: [row["copies"] for row in rows if row["model"] == name] for name in ("Ring", "ATR", "CTR")
    }
    ratio = copies["ATR"][-1] / copies["ATR"][0]
    text = (
        f"from segments of four windows to segments of half a window ATR stores {copies['ATR'][0]:.2f} to "
        f"{copies['ATR'][-1]:.2f} copies of a tuple, {ratio:.2f} times as many, on {NODES} nodes; CTR stores "
        f"as many as it is told, {copies['CTR'][0]:.2f} to {copies['CTR'][-1]:.2f}; the ring "
        f"{copies['Ring'][0]:.2f}"
    )
    rises = all(np.all(np.diff(copies[name]) > 0) for name in ("ATR", "CTR"))
    holds = bool(rises and copies["Ring"] == [1.0])
    return Measured(rows, Verdict(yes_or_no(holds), ratio, text), checks, given(work))


def response_by_selectivity(setup: Setup) -> Measured:
    rows, checks = by_selectivity(setup)
    grows = grown(rows, "selectivity", "response_ms")
    candidates = grown(rows, "selectivity", "candidates")
    low, high = setup.selectivities[0], setup.selectivities[-1]
    text = (
        f"from selectivity {low:g} to {high:g} pairs looked at grow by {spelled(candidates)} and response "
        f"times by {spelled(grows)}"
    )
    ratio = grows["Ring"]
    return Measured(
        rows, Verdict(yes_or_no(min(grows.values()) > 1.2), ratio, text), checks, given(setup.base)
    )


def state_by_selectivity(setup: Setup) -> Measured:
    rows, checks = by_selectivity(setup)
    grows = grown(rows, "selectivity", "mb_held")
    last = at(rows, "selectivity", setup.selectivities[-1], "mb_in_flight")
    held = at(rows, "selectivity", setup.selectivities[-1], "mb_held")
    text = (
        f"stored bytes change by {spelled(grows)}; at selectivity {setup.selectivities[-1]:g} partial "
        f"results in flight are {spelled(last, '{:.1f} MB')} at the most, beside "
        f"{spelled(held, '{:.1f} MB')} stored"
    )
    ratio = held["ATR"] / held["Ring"]
    holds = max(abs(grow - 1) for grow in grows.values()) < 0.02
    total = held["Ring"] + last["Ring"]
    share = total / (held["ATR"] + last["ATR"])
    partly = (
        f"; ATR stores {ratio:.2f} times the ring's bytes, and with what is in flight the ring holds "
        f"{share:.2f} of ATR's"
    )
    return Measured(rows, Verdict(yes_or_no(holds), ratio, text + partly), checks, given(setup.base))


def response_by_streams(setup: Setup) -> Measured:
    rows, checks = by_streams(setup)
    grows = grown(rows, "streams", "response_ms")
    most = setup.counts[-1]
    epochs = at(rows, "streams", most, "response_epochs")
    text = (
        f"from {setup.counts[0]} to {most} streams response times grow by {spelled(grows)}; at {most} "
        f"streams a result takes {spelled(epochs, '{:.0f}')} epoch(s)"
    )
    ratio = grows["Ring"]
    return Measured(rows, Verdict(yes_or_no(min(grows.values()) > 1), ratio, text), checks, given(setup.many))


def state_by_streams(setup: Setup) -> Measured:
    rows, checks = by_streams(setup)
    first, most = setup.counts[0], setup.counts[-1]
    grows = grown(rows, "streams", "mb_held")
    held = at(rows, "streams", most, "mb_held")
    copies = at(rows, "streams", most, "copies")
    text = (
        f"{most / first:.2f} times the streams hold {spelled(grows)} times the bytes; at {most} streams a "
        f"tuple is stored {spelled(copies)} times, and ATR holds {held['ATR'] / held['Ring']:.2f} times the "
        f"ring's bytes; a hop is an epoch, and what partial results under way may "
        f"still ask for stays that long, {most - 2} epochs of half a window here, which ATR is spared"
    )
    ratio = held["ATR"] / held["Ring"]
    is_least = min(held["ATR"], held["CTR"]) > held["Ring"]
    holds = abs(grows["Ring"] / (most / first) - 1) < 0.1 and is_least
    return Measured(rows, Verdict(yes_or_no(holds, is_least), ratio, text), checks, given(setup.many))


def response_by_pixels(setup: Setup) -> Measured:
    rows, checks = by_pixels(setup)
    grows, held = grown(rows, "pixels", "response_ms"), grown(rows, "pixels", "mb_held")
    low, high = setup.sizes[0], setup.sizes[-1]
    text = (
        f"{high / low:g} times the pixels take {spelled(grows)} times as long and hold {spelled(held)} times "
        "the bytes"
    )
    ratio = grows["Ring"]
    return Measured(rows, Verdict(yes_or_no(min(grows.values()) > 1), ratio, text), checks, given(setup.base))


def in_spark(setup: Setup) -> Measured:
    rows, checks, runs = [], [], []
    for nodes in setup.spark_nodes:
        settings: dict[str, Model] = {**models(setup.base, nodes), "Cascade": Biclique(nodes)}
        for label, model in settings.items():
            found = []
            for turn in range(setup.repeat):
                row, check = setup.spark.run(setup.base, model)
                setup.announce(
                    f"Spark: {label}, {nodes} node(s), {turn + 1}/{setup.repeat}: "
                    f"epoch {row['epoch_ms']:.0f} ms, response {row['response_ms']:.0f} ms"
                )
                found.append(row)
                checks.append(check)
                runs.append({"model": label, "nodes": nodes, **row})
            median = {key: statistics.median(row[key] for row in found) for key in found[0]}
            rows.append({"model": label, "setting": repr(model), "nodes": nodes, **median})
    last = {row["model"]: row for row in rows if row["nodes"] == setup.spark_nodes[-1]}
    ratio = last["Ring"]["response_ms"] / last["ATR"]["response_ms"]
    response = {name: row["response_ms"] for name, row in last.items()}
    epoch = {name: row["epoch_ms"] for name, row in last.items()}
    nodes = setup.spark_nodes[-1]
    text = (
        f"with {nodes} nodes on two cores results come after {spelled(response, '{:.0f} ms')}, "
        f"{ratio:.2f} times ATR's time for the ring, and epochs take "
        f"{spelled(epoch, '{:.0f} ms')}: a hop is an epoch here, not a message on a network, and that "
        "decides; the cascade joins two streams and then the third, with as many units a side, and stores "
        "what the first join finds"
    )
    return Measured(rows, Verdict(yes_or_no(ratio < 1), ratio, text), checks, given(setup.base), runs)


def given(work: Workload) -> dict[str, Any]:
    """The workload as the page names it."""
    return {
        "streams": work.streams,
        "tuples_per_stream": work.tuples,
        "tuples_per_window": work.per_window,
        "pixels": work.pixels,
        "selectivity": work.selectivity,
    }
