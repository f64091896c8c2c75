"""Checkpoints of an earlier version, kept in ``tests/fixtures``: each continues, or is refused by a sentence.

``python -m tests.support.kept_checkpoints`` writes them anew, with the version and the state format of today.
Two files of each stream are read then, and the others are read after the upgrade. The last file has one
tuple, far ahead of all others, so that the watermark decides all other tuples. Spark writes absolute paths
into its logs, so unpacking replaces their beginning.

The archive has a folder ``streams`` with all files of all streams, and a folder for each query.
"""

import json
import os
import random
import shutil
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import thetastream as th
from tests.support.kept_queries import KEPT, Kept, Place
from tests.support.kept_results import Rows

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "checkpoints.tar.xz"
PACKED_IN = "/tmp/thetastream-kept-checkpoints"
"""Where the files lay when they were packed."""
SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
"""The settings of the session that belong to the queries."""
FILES, PER_FILE, COMMITTED, STEP_S = 4, 20, 2, 3
LAST = PER_FILE * (FILES - 1)
"""The number of the last tuple of a stream."""
_START_S = 1_700_000_000
_FAR_S = 5_000
_BINARY = (".sst", ".zip", ".changelog", ".parquet")


def write_streams(folder: Path) -> None:
    """Write the files of three streams. A tuple of ``b`` comes a second later than that of ``a``."""
    for shift, alias in enumerate("abc"):
        chance = random.Random(alias)
        (folder / alias).mkdir(parents=True)
        for number in range(FILES - 1):
            ids = range(number * PER_FILE, (number + 1) * PER_FILE)
            rows = [_draw_row(chance, each) | {"ts": _write_time(STEP_S * each + shift)} for each in ids]
            (folder / alias / f"{number}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        # Its columns are not NULL, because Spark moves filters of NULL to a place before the watermark.
        far = {"id": LAST, "k": 100 + shift, "x": 1000 * (shift + 1), "y": 1000 * (shift + 1), "s": alias}
        far |= {"d": 0.0, "m": "0.00", "tags": [], "ts": _write_time(_FAR_S + shift)}
        (folder / alias / f"{FILES - 1}.json").write_text(json.dumps(far))


def _draw_row(chance: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "k": chance.randrange(5),
        "x": chance.randrange(20),
        "y": chance.randrange(12),
        "s": chance.choice(["", "ä", "long and longer"]),
        "d": chance.choice([-0.5, 0.25, 1e300, 2.0]),
        "m": f"{chance.randrange(10)}.{chance.randrange(100):02}",
        "tags": [chance.choice("xyz") for _ in range(chance.randrange(3))],
    }


def _write_time(second: int) -> str:
    return datetime.fromtimestamp(_START_S + second, UTC).isoformat()


def read_streams(folder: Path) -> Rows:
    """Read the rows of all streams but the last ones, which join nothing."""
    return {
        each.name: [
            row | {"t": datetime.fromisoformat(row["ts"]).timestamp()}
            for path in sorted(each.iterdir())
            for row in map(json.loads, path.read_text().splitlines())
            if row["id"] < LAST
        ]
        for each in (folder / "streams").iterdir()
    }


def bring_files(folder: Path, numbers: range) -> None:
    """Give these files of all streams to the query of a folder."""
    for source in (folder / "streams").iterdir():
        (folder / source.name).mkdir(exist_ok=True)
        for number in numbers:
            target = folder / source.name / f"{number}.json"
            shutil.copyfile(source / target.name, target)
            # Spark reads files in the order of their modification times.
            os.utime(target, (_START_S + number,) * 2)


def run(kept: Kept, place: Place) -> None:
    """Run a query on what is there."""
    query = kept.start(place)
    try:
        query.awaitTermination()
    finally:
        query.stop()


def unpack(name: str, folder: Path) -> None:
    """Unpack the checkpoint of a query into a folder, with the files that it has read.

    Its paths become those of the folder.
    """
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            top, _, rest = member.name.partition("/")
            if top == "streams":
                archive.extract(member, folder, filter="data")
            elif top == name and rest:
                archive.extract(member.replace(name=rest), folder, filter="data")
    before = f"{PACKED_IN}/{name}".encode()
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in _BINARY and before in (data := path.read_bytes()):
            path.write_bytes(data.replace(before, str(folder).encode()))
    bring_files(folder, range(COMMITTED))


def make(spark: SparkSession, kept: Kept, folder: Path, streams: Path) -> None:
    """Run a query on the first files of its streams."""
    folder.mkdir()
    (folder / "streams").symlink_to(streams)
    if kept.change is None:
        bring_files(folder, range(COMMITTED))
        try:
            run(kept, Place(spark, folder, crash_in=1 if kept.is_interrupted else None))
        except StreamingQueryException as error:
            if not kept.is_interrupted or "on purpose" not in str(error):
                raise
        return
    bring_files(folder, range(1))
    run(kept, Place(spark, folder))
    kept.change(Place(spark, folder))
    bring_files(folder, range(1, COMMITTED))
    run(kept, Place(spark, folder))


def pack(folder: Path) -> None:
    """Pack the streams, and what queries have written beside them."""
    ARCHIVE.parent.mkdir(exist_ok=True)
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for path in sorted(folder.rglob("*")):
            place = path.relative_to(folder)
            is_input = place.parts[0] != "streams" and place.parts[1:2] in (
                ("streams",),
                *((a,) for a in "abc"),
            )
            if not path.is_dir() and not is_input and not path.name.endswith(".crc"):
                archive.add(path, place, recursive=False, filter=_forget_owner)


def _forget_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def main(names: list[str]) -> None:
    """Write all checkpoints anew, or try those with these names without packing them."""
    folder = Path(PACKED_IN)
    shutil.rmtree(folder, ignore_errors=True)
    write_streams(folder / "streams")
    spark = th.local_session(2, **SETTINGS)
    for name in names or KEPT:
        make(spark, KEPT[name], folder / name, folder / "streams")
        print(f"{name}: {sum(KEPT[name].read(folder / name).values())} results", flush=True)
    spark.stop()
    if not names:
        pack(folder)
        shutil.rmtree(folder)
        print(f"{ARCHIVE} has {ARCHIVE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
