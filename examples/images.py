"""Two cameras and a measure of images: which pictures show the same scene?

{ (a, b) : |ta - tb| <= 10 s, the pixels of a and b differ by at most 12 of 255 on average }

The paper on PSP measures this join: similar images of different cameras, by the RGB values of all pixels,
with images of 5,000 pixels. The cameras take parts of a photograph that Matplotlib brings, with noise and
another brightness. The paper evaluates its function for each pair of images in the window. Here it is a
measure: thumbnails leave out most pairs, and units compare the others byte by byte. NumPy compares all pairs
and checks the answer.
"""

import argparse
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib import cbook, image
from matplotlib.figure import Figure
from pyspark.sql.functions import udf

import thetastream as th
from thetastream.core.measure import PairMeasure, Proposal, Values
from thetastream.index.measures import REGISTRY

HEIGHT, WIDTH, BLOCK = 64, 80, 16  # 5,120 pixels, as the small images of the paper; thumbnails of 4 x 5
IMAGES, SCENES = 300, 80  # of each camera, and how many of them show what the other one shows
ALIKE, WITHIN_S, EPOCHS = 12, 10, 5
SECOND = 1_000_000
SCHEMA = "id INT, ts TIMESTAMP, image BINARY"

# --- The measure -----------------------------------------------------------------------------------------


class PixelDistance(PairMeasure):
    """The mean difference of the bytes of two images of one size.

    The difference of two sums is at most the sum of the differences. So the distance of two images is at
    least that of their thumbnails, whose bytes are sums of blocks of pixels.
    """

    name = "pixel_distance"
    forms = ("pixel_distance(left, right)",)
    arguments = "two images, of type BINARY"

    def takes(self, left, right):
        """Say whether the Spark types of the arguments are right."""
        return left == right == "binary"

    def derive(self, column):
        """Compute the thumbnails of a column, one image in a row. They are kept with the stored tuples."""
        pixels = read_pixels(column).astype(np.int32)
        blocks = pixels.reshape(len(column), HEIGHT // BLOCK, BLOCK, WIDTH // BLOCK, BLOCK, 3)
        return blocks.sum(axis=(2, 4), dtype=np.int32).reshape(len(column), -1)

    def propose(self, search, capacity):
        """Propose the pairs whose thumbnails may satisfy the comparison; in the other direction, all."""
        limit, thumbnails = search.limit, search.stored[search.stored_rows]
        for number, thumbnail in enumerate(search.probes[search.probe_rows]):
            least = np.abs(thumbnails - thumbnail).sum(axis=1) / (HEIGHT * WIDTH * 3)
            found = np.flatnonzero((least <= limit.value) | limit.is_far)
            yield Proposal(np.full(len(found), number), found)

    def compute(self, left, left_rows, right, right_rows):
        """Compute the value of each pair (left[left_rows[i]], right[right_rows[i]])."""
        x, y = read_pixels(left), read_pixels(right)
        values = np.empty(len(left_rows))
        for number, (i, j) in enumerate(zip(left_rows, right_rows, strict=True)):
            values[number] = difference(x[i], y[j])
        return Values(values, np.zeros(len(values), dtype=bool))


def read_pixels(column):
    """Return the bytes of a column of images, one image in a row. Nothing is copied."""
    start, data = column.offset * HEIGHT * WIDTH * 3, np.frombuffer(column.buffers()[2], np.uint8)
    return data[start : start + len(column) * HEIGHT * WIDTH * 3].reshape(len(column), -1)


def difference(x, y):
    """Return the mean difference of the bytes of two images."""
    return float(np.abs(x.astype(np.int16) - y).sum(dtype=np.int64)) / len(x)


def compare(x, y):
    """Do the same for two values of Spark."""
    return difference(np.frombuffer(x, np.uint8), np.frombuffer(y, np.uint8))


REGISTRY["pixel_distance"] = PixelDistance()

# --- The data --------------------------------------------------------------------------------------------


def make_cameras(rng):
    """Cut images out of a photograph. Some scenes are seen by both cameras, a few seconds apart."""
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        photograph = image.imread(file, format="jpg").astype(float)
    limits = [side - part for side, part in zip(photograph.shape, (HEIGHT, WIDTH), strict=False)]
    scenes = [rng.integers(0, limit, 2 * IMAGES) for limit in limits]
    times = np.sort(rng.integers(0, 600 * SECOND, 2 * IMAGES))
    cameras = []
    for camera in range(2):
        own = np.arange(SCENES, IMAGES) + camera * (IMAGES - SCENES)
        rows = []
        for scene in (*range(SCENES), *own):
            y, x = scenes[0][scene], scenes[1][scene]
            part = photograph[y : y + HEIGHT, x : x + WIDTH]
            seen = part * rng.uniform(0.97, 1.03) + rng.normal(0, 5, part.shape)
            moment = times[scene] + rng.integers(0, 4 * SECOND)
            rows.append((scene, int(moment), np.clip(seen, 0, 255).astype(np.uint8).tobytes()))
        rows.sort(key=lambda row: row[1])
        rows.append((-1, 3600 * SECOND, bytes(HEIGHT * WIDTH * 3)))  # it moves the watermark past all others
        ids, moments, images = zip(*rows, strict=True)
        stamps = pa.array(moments, pa.timestamp("us", "UTC"))
        columns = [pa.array(ids, pa.int32()), stamps, pa.array(images, pa.binary())]
        cameras.append(pa.table(columns, names=["id", "ts", "image"]))
    return cameras


def write_replay(table, folder):
    """Cut a stream into files, one for each epoch. Spark reads them by modification time."""
    folder.mkdir(parents=True)
    for number, rows in enumerate(np.array_split(np.arange(len(table)), EPOCHS), 1):
        path = folder / f"{number}.parquet"
        pq.write_table(table.slice(rows[0], len(rows)), path)
        os.utime(path, (number, number))


# --- The join, and its check -----------------------------------------------------------------------------


def join(spark, out):
    """Find the pairs of similar images with a streaming join."""
    # Catalyst must know the name. Spark itself calls the function only where units do not compute it.
    spark.udf.register("pixel_distance", udf(compare, "double"))
    streams = {}
    for name in "ab":
        files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        streams[name] = files.parquet(str(out / "replay" / name)).withWatermark("ts", "5 seconds")
    plan = th.plan(
        streams,
        on=f"pixel_distance(a.image, b.image) <= {ALIKE} AND a.id >= 0",
        within=f"{WITHIN_S} seconds",
    )
    assert "units compute pixel_distance as Spark does" in plan.explain()
    found = plan.dataframe().selectExpr("a.id AS a", "b.id AS b")
    sink = found.writeStream.format("parquet").option("path", str(out / "pairs"))
    query = sink.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.read.parquet(str(out / "pairs")).collect()
    return sorted(tuple(row) for row in rows)


def check(cameras):
    """Compare all images inside the window with NumPy. Also count them, and those with similar thumbnails."""
    ids = [camera["id"].to_numpy() for camera in cameras]
    moments = [camera["ts"].cast(pa.int64()).to_numpy() for camera in cameras]
    columns = [camera["image"].combine_chunks() for camera in cameras]
    images = [read_pixels(column) for column in columns]
    thumbnails = [PixelDistance().derive(column) for column in columns]
    is_inside = np.abs(moments[0][:, None] - moments[1]) <= WITHIN_S * SECOND
    i, j = np.nonzero(is_inside & (ids[0] >= 0)[:, None])
    near = [difference(images[0][x], images[1][y]) <= ALIKE for x, y in zip(i, j, strict=True)]
    pairs = sorted(zip(ids[0][i[near]].tolist(), ids[1][j[near]].tolist(), strict=True))
    left = np.abs(thumbnails[0][i] - thumbnails[1][j]).sum(axis=1) <= ALIKE * HEIGHT * WIDTH * 3
    return pairs, len(i), int(left.sum())


# --- The picture -----------------------------------------------------------------------------------------


def draw(cameras, pairs, path):
    """Draw some of the pairs, one below the other."""
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    chosen = [pair for pair in pairs if pair[0] == pair[1]][:6]
    axes = figure.subplots(2, len(chosen))
    for row, (name, camera) in enumerate(zip("ab", cameras, strict=True)):
        places = {number: place for place, number in enumerate(camera["id"].to_pylist())}
        pixels = read_pixels(camera["image"].combine_chunks())
        for column, pair in enumerate(chosen):
            axis = axes[row][column]
            axis.imshow(pixels[places[pair[row]]].reshape(HEIGHT, WIDTH, 3))
            axis.set(xticks=[], yticks=[], title=f"{name}: scene {pair[row]}")
            axis.title.set_fontsize(8)
    figure.savefig(path, dpi=80)
    return path


def main():
    """Join, check and draw; return 1 if the answers differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/images"), help="where results go (out/images)")
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    cameras = make_cameras(np.random.default_rng(3))
    for name, camera in zip("ab", cameras, strict=True):
        write_replay(camera, out / "replay" / name)
    n_pixels = HEIGHT * WIDTH
    print(f"2 cameras, 10 minutes, {IMAGES} images of {n_pixels:,} pixels each; {SCENES} scenes of both.")
    print(f"Wanted: images inside {WITHIN_S} seconds whose bytes differ by {ALIKE} of 255 or less.\n")
    spark = th.local_session(2, "images")
    pairs = join(spark, out)
    wanted, n_inside, n_left = check(cameras)
    seen, others = len({a for a, b in pairs if a == b}), sum(a != b for a, b in pairs)
    print(f"pixel_distance  {len(pairs)} pairs; thumbnails leave {n_left:,} of {n_inside:,} in the window")
    print(f"NumPy           {len(wanted)} pairs, {'the same' if pairs == wanted else 'DIFFERENT'}")
    print(f"the truth       {seen} of {SCENES} scenes found; {others} pair(s) of different scenes")
    print(f"picture         {draw(cameras, pairs, out / 'images.png')}")
    return 0 if pairs == wanted else 1


if __name__ == "__main__":
    raise SystemExit(main())
