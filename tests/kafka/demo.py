"""``make demo-kafka``: a broker, two topics that are joined into a third, and a record that is no JSON.

{ (t, q) : |t.price - q.price| <= 0.05, 10 seconds apart at most }
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.support.kafka import BROKER, Broker, fetch_connector, run_broker
from tests.support.maven import fetch_jars

OUT = Path("out/kafka")
ROUNDS, PER_ROUND = 6, 40
JOB = """\
sql = '''
SELECT ONLINE to_json(named_struct('trade', t.id, 'quote', q.id, 'price', t.price)) AS value
FROM trades t, quotes q
WHERE abs(t.price - q.price) <= 0.05
WITHIN 10 seconds
'''
checkpoint = "checkpoint"
trigger = "1 second"
{sources}
[sink]
format = "kafka"
options = {{ "kafka.bootstrap.servers" = "{servers}", topic = "pairs" }}

[spark]
"spark.jars" = "{jars}"
"spark.sql.session.timeZone" = "UTC"
"spark.sql.shuffle.partitions" = 2
"""
SOURCE = """
[sources.{topic}]
format = "kafka"
decode = "json"
schema = "id LONG, price DOUBLE, ts TIMESTAMP"
event_time = "ts"
delay = "5 seconds"
dead_letters = "dead/{topic}"
options = {{ "kafka.bootstrap.servers" = "{servers}", subscribe = "{topic}", startingOffsets = "earliest" }}
"""


def write_job(folder: Path, broker: Broker, jars: str) -> Path:
    """Write the job file into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sources = "".join(SOURCE.format(topic=topic, servers=broker.servers) for topic in ("trades", "quotes"))
    job = folder / "job.toml"
    job.write_text(JOB.format(sources=sources, servers=broker.servers, jars=jars))
    return job


def send(broker: Broker) -> None:
    """Send trades and quotes of now, round by round, and one record that is no JSON."""
    chance = random.Random(1)
    for number in range(ROUNDS):
        for topic in ("trades", "quotes"):
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            rows = [
                {"id": number * PER_ROUND + n, "price": round(chance.uniform(90, 110), 2), "ts": now}
                for n in range(PER_ROUND)
            ]
            broken = ["this is no JSON"] if (number, topic) == (0, "trades") else []
            broker.send(topic, [*map(json.dumps, rows), *broken])


def main() -> None:
    """Run the demo."""
    print(f"Fetching Kafka and the connector by Maven into {OUT} (once)", flush=True)
    jars, connector = fetch_jars(BROKER, OUT / "broker"), fetch_connector(OUT)
    with run_broker(OUT / f"demo-{time.time_ns()}", jars) as broker:
        print(f"A broker listens at {broker.servers}.", flush=True)
        broker.make_topics("trades", "quotes", "pairs")
        job = write_job(OUT / "demo", broker, connector)
        print(f"thetastream run {job}", flush=True)
        sender = threading.Thread(target=send, args=(broker,))
        sender.start()
        with subprocess.Popen([sys.executable, "-m", "thetastream.app.cli", "run", str(job)]) as running:
            sender.join()
            broker.receive("pairs", 1, timeout_s=180)  # The first epoch of a busy machine may take a minute.
            time.sleep(5)
            running.send_signal(signal.SIGTERM)
        assert running.returncode == 0, (job.parent / "checkpoint.log").read_text()[-3000:]
        pairs = broker.receive("pairs", 1_000_000, timeout_s=5)
    print(f"The topic pairs has {len(pairs):,} results, for example:", *pairs[:3], sep="\n  ")
    print(f"Dead letters are in {job.parent / 'dead'}.")
    assert pairs


if __name__ == "__main__":
    main()
