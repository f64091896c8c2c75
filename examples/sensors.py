"""Three microphones in a machine hall: which recordings are of the same knock?

{ (a, b, c) : within a second of one another, a sounds like b, b sounds like c }

A microphone that hears a knock sends some milliseconds of sound. Each microphone hears the knock with another
loudness, at another moment and with other noise, and it also sends sounds that only it hears. So no column of
one recording equals, or is near, a column of another. A Python function decides whether two recordings sound
alike, and the ring joins on it.
"""

import argparse
import os
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure

import thetastream as th

MICROPHONES = ("a", "b", "c")
SAMPLES, SHIFT = 64, 6  # samples of a recording, and by how many of them two microphones may be out of step
ALIKE = 0.8  # the least correlation of two recordings of one knock
SECOND = 1_000_000  # in microseconds, the unit of event times
WITHIN = SECOND
KNOCKS, OWN, MINUTES = 600, 600, 10  # knocks that all hear, sounds that only one hears, length of the streams
EPOCHS = 8
DELAY = 5 * SECOND  # the longest that a recording takes to arrive
SCHEMA = "id BIGINT, ts TIMESTAMP, wave ARRAY<FLOAT>"


# --- The condition ---------------------------------------------------------------------------------------


def correlation(x, y):
    """Compute the highest correlation of the middle of x with any part of y, row by row.

    x and y are float matrices of shape (n, SAMPLES); the result is n numbers from -1 to 1.
    """
    width = SAMPLES - 2 * SHIFT
    middle = standardise(x[:, SHIFT : SHIFT + width])
    best = np.full(len(x), -1.0)
    for shift in range(2 * SHIFT + 1):
        stretch = standardise(y[:, shift : shift + width])
        np.maximum(best, np.einsum("ij,ij->i", middle, stretch), out=best)
    return best


def standardise(x):
    """Scale rows to mean 0 and length 1, so that loudness does not matter."""
    x = x - x.mean(axis=1, keepdims=True)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def waves(column):
    """Turn an ARRAY<FLOAT> column into a matrix, without a loop over its rows."""
    return column.flatten().to_numpy().reshape(len(column), SAMPLES).astype(float)


@th.predicate(a=["wave"], b=["wave"])
def a_sounds_like_b(a, b):
    """Return one boolean for each candidate, which is row i of a and row i of b."""
    return correlation(waves(a.wave), waves(b.wave)) >= ALIKE


@th.predicate(b=["wave"], c=["wave"])
def b_sounds_like_c(b, c):
    """Compare b and c in the same way; a and c must only be within the window."""
    return correlation(waves(b.wave), waves(c.wave)) >= ALIKE


# --- The data --------------------------------------------------------------------------------------------


def knocks(rng, n):
    """Make n knocks, each a sum of decaying tones and a little longer than a recording."""
    t = np.arange(SAMPLES + 2 * SHIFT)
    tones = (n, 4, 1)
    frequency, decay = rng.uniform(0.02, 0.3, tones), rng.uniform(8, 60, tones)
    phase, loudness = rng.uniform(0, 2 * np.pi, tones), rng.uniform(0.3, 1, tones)
    return (loudness * np.exp(-t / decay) * np.sin(2 * np.pi * frequency * t + phase)).sum(axis=1)


def recordings(rng, shared, times):
    """Make the recordings of one microphone in the order of arrival; shared knocks have the lowest ids."""
    sounds = np.concatenate([shared, knocks(rng, OWN)])
    moments = np.concatenate([times, rng.integers(0, MINUTES * 60 * SECOND, OWN)])
    n = len(sounds)
    starts = rng.integers(0, SHIFT + 1, (n, 1))
    heard = np.take_along_axis(sounds, starts + np.arange(SAMPLES), axis=1) * rng.uniform(0.2, 3, (n, 1))
    heard += rng.normal(0, 0.25, heard.shape) * heard.std(axis=1, keepdims=True)
    ts = moments + rng.integers(0, SECOND // 5, n)
    arrival = np.argsort(ts + rng.integers(0, DELAY, n))
    wave = pa.FixedSizeListArray.from_arrays(heard.astype("f4").ravel(), SAMPLES).cast(pa.list_(pa.float32()))
    columns = {"id": pa.array(np.arange(n)), "ts": pa.array(ts, pa.timestamp("us", "UTC")), "wave": wave}
    return pa.table(columns).take(arrival)


def write_replay(table, folder):
    """Cut a stream into files, one for each epoch. Spark reads them by modification time."""
    folder.mkdir(parents=True)
    cuts = np.linspace(0, len(table), EPOCHS + 1).astype(int)
    for number, (start, end) in enumerate(pairwise(cuts), 1):
        path = folder / f"{number}.parquet"
        pq.write_table(table.slice(start, end - start), path)
        os.utime(path, (number, number))


# --- The join, and its check -----------------------------------------------------------------------------


def join(spark, out):
    """Find triples of ids with a streaming join."""

    def stream(name):
        files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return files.parquet(str(out / "replay" / name)).withWatermark("ts", "5 seconds")

    triples = th.join(
        {name: stream(name) for name in MICROPHONES},
        on=[a_sounds_like_b, b_sounds_like_c],
        within="1 second",
        model=th.Ring(nodes=2),
        mailbox=str(out / "mailbox"),
    )
    found = triples.selectExpr("a.id AS a", "b.id AS b", "c.id AS c")
    sink = found.writeStream.format("parquet").option("path", str(out / "triples"))
    query = sink.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    late = sum(epoch["late"] for epoch in th.metrics(query))
    triples = spark.read.parquet(str(out / "triples")).toArrow()
    return sorted(zip(*(triples.column(name).to_pylist() for name in MICROPHONES), strict=True)), late


def by_id(table):
    """Read the event times and the waves of a stream, both sorted by id."""
    table = table.sort_by("id").combine_chunks()
    return table["ts"].cast(pa.int64()).to_numpy(), waves(table["wave"].chunk(0))


def nested_loop(tables):
    """Find the same triples by comparing every recording with every other."""
    ts, wave = ({name: by_id(table)[part] for name, table in tables.items()} for part in (0, 1))

    def partners(x, i, y):
        near = np.flatnonzero(np.abs(ts[y] - ts[x][i]) <= WITHIN)
        one = np.repeat(wave[x][i : i + 1], len(near), axis=0)
        return near[correlation(one, wave[y][near]) >= ALIKE].tolist()

    c_of = [partners("b", j, "c") for j in range(len(ts["b"]))]
    return sorted(
        (i, j, k)
        for i in range(len(ts["a"]))
        for j in partners("a", i, "b")
        for k in c_of[j]
        if abs(ts["a"][i] - ts["c"][k]) <= WITHIN
    )


# --- The picture -----------------------------------------------------------------------------------------


def draw(tables, triples, path, start=60, seconds=15):
    """Draw some seconds of all three streams with the triples that were found, and the sounds of four
    triples.
    """
    ts, wave = ({name: by_id(table)[part] for name, table in tables.items()} for part in (0, 1))
    moments = (
        np.array([[ts[n][i] for n, i in zip(MICROPHONES, t, strict=True)] for t in triples]) / SECOND - start
    )
    is_shown = ((moments >= 0) & (moments <= seconds)).all(axis=1)
    order = [row for row in np.argsort(moments[:, 0]) if is_shown[row]]

    figure = Figure(figsize=(11, 5.5), layout="constrained")
    axes = figure.subplot_mosaic([["time"] * 4, list("0123")], height_ratios=[1, 1.2])
    for height, name in enumerate(MICROPHONES):
        seen = ts[name] / SECOND - start
        seen = seen[(seen >= 0) & (seen <= seconds)]
        axes["time"].plot(seen, np.full(len(seen), height), "|", color="#999999", markersize=14)
    for number, row in enumerate(order):
        color = f"C{number}" if number < 4 else "#777777"
        axes["time"].plot(moments[row], range(3), "-o", color=color, markersize=4)
    axes["time"].set_yticks(range(3), [f"microphone {name}" for name in MICROPHONES])
    axes["time"].set(xlabel="seconds", title="Recordings, and those that were joined", ylim=(2.4, -0.4))
    for number, row in enumerate(order[:4]):
        panel = axes[str(number)]
        for height, (name, i) in enumerate(zip(MICROPHONES, triples[row], strict=True)):
            heard = wave[name][i]
            panel.plot(heard / np.abs(heard).max() - 2.2 * height, color=f"C{number}", linewidth=1)
        panel.set(
            xticks=[], yticks=[0, -2.2, -4.4], yticklabels=MICROPHONES, title=f"knock {triples[row][0]}"
        )
    figure.savefig(path, dpi=80)
    return path


def main():
    """Generate, join, check and draw; return 0 if the results are correct."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, default=Path("out/sensors"))
    out = arguments.parse_args().out
    for part in ("replay", "triples", "checkpoint", "mailbox"):
        shutil.rmtree(out / part, ignore_errors=True)

    rng = np.random.default_rng(5)
    shared, times = knocks(rng, KNOCKS), np.sort(rng.integers(0, MINUTES * 60 * SECOND, KNOCKS))
    tables = {name: recordings(rng, shared, times) for name in MICROPHONES}
    for name, table in tables.items():
        write_replay(table, out / "replay" / name)
    print(f"3 microphones, {MINUTES} minutes, {KNOCKS + OWN:,} recordings each: {KNOCKS} of knocks that all")
    print(f"hear, {OWN} of its own; {EPOCHS} files each, out of order by up to {DELAY // SECOND} seconds.\n")

    spark = th.local_session(cores=2)
    found, late = join(spark, out)
    expected = nested_loop(tables)
    right = sum(a == b == c < KNOCKS for a, b, c in found)
    print(f"ring         {len(found):,} triples; {late} recordings came too late")
    print(f"nested loop  {len(expected):,} triples, {'the same' if found == expected else 'NOT THE SAME'}")
    print(
        f"the truth    {right} of {KNOCKS} knocks found; {len(found) - right} triple(s) of different sounds"
    )
    print(f"picture      {draw(tables, found, out / 'sensors.png')}")
    return 0 if found == expected else 1


if __name__ == "__main__":
    raise SystemExit(main())
