"""Writes the job of ``thetastream init``, which runs without changes, and its two small streams."""

import os
import random
from pathlib import Path

from thetastream.core.errors import ThetastreamError

_JOB = """\
# This job joins every bid with the asks of its symbol that cost at most as much, up to a minute apart.
#   thetastream check job.toml
#   thetastream run job.toml --until-caught-up
sql = \"\"\"
SELECT ONLINE b.id AS bid, a.id AS ask, b.symbol, b.price - a.price AS crossed
FROM bids b, asks a
WHERE b.symbol = a.symbol AND b.price >= a.price
WITHIN 1 minute
\"\"\"
checkpoint = "checkpoint"

[sources.bids]
format = "csv"
path = "bids"
schema = "id INT, symbol STRING, price DOUBLE, ts TIMESTAMP"
event_time = "ts"
delay = "10 seconds"
options = { header = true, maxFilesPerTrigger = 1 }

[sources.asks]
format = "csv"
path = "asks"
schema = "id INT, symbol STRING, price DOUBLE, ts TIMESTAMP"
event_time = "ts"
delay = "10 seconds"
options = { header = true, maxFilesPerTrigger = 1 }

[sink]
format = "parquet"
path = "matches"

[spark]
"spark.sql.session.timeZone" = "UTC"
"""
FILES, PER_FILE = 3, 200
FIRST_FILE_S = 1_700_000_000
"""Modification time of the first file; Spark reads files in the order of their modification times."""


def write(folder: Path) -> None:
    """Write the job and its streams into a new or empty folder."""
    if folder.exists() and any(folder.iterdir()):
        raise ThetastreamError("FOLDER_NOT_EMPTY", f"{folder} must be a new or empty folder")
    chance = random.Random(1)
    for stream, edge in (("bids", -0.2), ("asks", 0.2)):
        (folder / stream).mkdir(parents=True)
        for number in range(FILES):
            lines = ["id,symbol,price,ts"]
            for row in range(number * PER_FILE, (number + 1) * PER_FILE):
                price = 100 + edge + chance.gauss(0, 0.1)
                minute, second = divmod(row, 60)
                symbol = chance.choice(["AAA", "BBB", "CCC"])
                lines.append(f"{row},{symbol},{price:.2f},2024-01-02T09:{minute:02}:{second:02}Z")
            file = folder / stream / f"{number}.csv"
            file.write_text("\n".join(lines) + "\n")
            os.utime(file, (FIRST_FILE_S + number,) * 2)
    (folder / "job.toml").write_text(_JOB)
