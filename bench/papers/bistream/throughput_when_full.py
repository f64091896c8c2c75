"""Throughput when memory is full (BiStream, figures 7 and 8, in one process).

While everything fits in memory, all settings have similar throughput, random routing a little less than the
matrix. At the middle volume JM16 is full, reads from disk and falls far behind all bicliques, by an order of
magnitude even behind JB8 with half of the units. At the largest volume JB8 is full too. ContRand routing is
fastest, the more subgroups the better.

A unit whose memory is full keeps the rest on a disk (``bounded_memory``). An epoch lasts as long as its
slowest unit, by its CPU time and its counted bytes at 100 MB/s, which is our assumption. The paper's volumes
are 10, 80 and 320 GB; ours have a thousand tuples for each GB. The paper's matrix is full after 28 million
tuples and JB8 after 52 million, with the middle volume between them. So the memory of a unit is what it holds
in the matrix after 28 / 40 of the middle volume.
Both streams are equally long, as the paper's square matrix supposes; so Q5 and Q7, of which one stream is far
shorter here, are replaced by an equality of 10,000 keys and a band in two dimensions.
"""

import numpy as np

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import Model
from bench.core.query import Query
from bench.core.replay import bytes_held, replay, run_epochs, until
from bench.core.rows import Rows
from bench.papers import inputs
from bench.papers.bistream.bounded_memory import BoundedJoin, last_s
from bench.papers.bistream.models import square
from thetastream.models import Biclique

GB = (10, 80, 320)
TUPLES_PER_GB, PER_EPOCH = 1_000, 5_000
"""Numbers of tuples of both streams."""
SHARE_FULL = 28 / 40
"""The share of the middle volume after which the matrix is full."""
DISK_BYTES_PER_S = 100e6
EPOCHS_PER_POINT = 2
MODELS: dict[str, Model] = {
    "JM16": square(16),
    "JB8": Biclique(4),
    "JB16": Biclique(8),
    "JB16-CR4": Biclique(8, subgroups=4),
    "JB16-CR8": Biclique(8, subgroups=8),
}


def find_memory(query: Query, epochs: int, epoch: int) -> float:
    """Find the bytes that the fullest unit of the matrix holds after so many epochs."""
    steps = until(replay(query, MODELS["JM16"], epochs), lambda seen: len(seen) == epoch)
    return float(max(bytes_held(steps[-1])))


def measure_setting(run: Run, query: Query, setting: str, memory: float, epochs: int) -> None:
    """Replay a setting; note its throughput after every few epochs, and up to each volume."""
    what = f"{query.name}, {setting}"
    run.announce(what)
    join = BoundedJoin(query.unit_spec(), MODELS[setting], memory)
    seconds, volumes, disk, full_at, results = [], [], [np.zeros(len(join.bounded))], None, 0
    for step, _ in run_epochs(join, query, epochs):
        disk.append(np.array(join.disk_bytes))
        seconds.append(last_s(step, list(disk[-1] - disk[-2]), DISK_BYTES_PER_S))
        volumes.append(step.volume)
        results += step.results
        if full_at is None and any(store.is_full for store in join.bounded):
            full_at = step.volume
    run.check(what, query.expected, results)
    named = {"query": query.name, "setting": setting, "memory_mb": memory / 1e6, "full_at": full_at}
    for end in range(EPOCHS_PER_POINT, epochs + 1, EPOCHS_PER_POINT):
        part = slice(end - EPOCHS_PER_POINT, end)
        tuples = volumes[end - 1] - (volumes[end - 1 - EPOCHS_PER_POINT] if end > EPOCHS_PER_POINT else 0)
        run.add(**named, volume=volumes[end - 1], now_per_s=tuples / sum(seconds[part]))
    for gb in GB:
        end = epochs * gb // GB[-1]
        rate = volumes[end - 1] / sum(seconds[:end])
        mb = float(disk[end].sum() / 1e6)
        run.add(**named, gb=gb, volume=volumes[end - 1], bound_tuples_per_s=rate, disk_mb=mb)


def measure(run: Run) -> Verdict:
    n, epochs = run.sized(GB[-1] * TUPLES_PER_GB // 2), GB[-1] * TUPLES_PER_GB // PER_EPOCH
    queries = [inputs.zipf(n, 0.0, run.seed), inputs.handshake(n, run.seed)]
    names = ("equality", "band")
    for query, name in zip(queries, names, strict=True):
        memory = find_memory(query, epochs, round(SHARE_FULL * epochs * GB[1] / GB[-1]))
        for setting in MODELS:
            before = len(run.rows)
            measure_setting(run, query, setting, memory, epochs)
            for row in run.rows[before:]:
                row["query"] = name
    run.parameters = {"epochs": epochs, "disk": "100 MB/s", "tuples of an epoch": 2 * n // epochs}
    return judge(run.rows)


def judge(rows: Rows) -> Verdict:
    """Compare the settings up to each volume."""
    names = list(dict.fromkeys(row["query"] for row in rows))
    small, middle, large = (
        {name: rows.by("setting", "bound_tuples_per_s", query=name, gb=gb) for name in names} for gb in GB
    )

    def compare(rates: dict[str, dict[str, float]], setting: str, other: str) -> dict[str, float]:
        return {name: rate[setting] / rate[other] for name, rate in rates.items()}

    ahead = compare(middle, "JB8", "JM16")
    ratio = min(ahead.values())
    full = rows.by("setting", "full_at", query=names[0], gb=GB[0])
    facts = {
        "the first unit is full after (tuples, equality)": full,
        "up to the small volume, random routing reaches the throughput of JM16 times": compare(
            small, "JB16", "JM16"
        ),
        "up to the middle volume, JB8 reaches it times": ahead,
        "the least is": ratio,
        "JB16-CR8 reaches it times": compare(middle, "JB16-CR8", "JM16"),
        "up to the largest volume, JB8 reaches it times": compare(large, "JB8", "JM16"),
        "JB16-CR8 reaches it there times": compare(large, "JB16-CR8", "JM16"),
        "JM16 falls from the small to the largest volume by a factor of": {
            name: small[name]["JM16"] / large[name]["JM16"] for name in names
        },
    }
    remark = "an epoch reads the rest once for all its tuples, and the paper's units read for each tuple"
    volume = rows.at("volume", gb=GB[1])
    in_order = full["JM16"] <= volume and not (full["JB8"] is not None and full["JB8"] <= volume)
    return Verdict(in_order and ratio > 3, ratio, facts, remark, partly=in_order and ratio > 1)


FIGURE = Figure(
    measure,
    "JB8 / JM16, throughput up to the middle volume, the query with the least",
    (
        Panel("equality, as tuples arrive", "volume", "now_per_s", "setting", {"query": "equality"}, "y"),
        Panel("band, as tuples arrive", "volume", "now_per_s", "setting", {"query": "band"}, "y"),
        Panel("equality, mean", "gb", "bound_tuples_per_s", "setting", {"query": "equality"}, "xy"),
        Panel("band, mean", "gb", "bound_tuples_per_s", "setting", {"query": "band"}, "xy"),
    ),
    "query; setting; gb|volume (GB of the paper); volume; full_at|full after (tuples);"
    " disk_mb|MB read and written; bound_tuples_per_s",
    is_in_table=lambda row: "gb" in row,
)
