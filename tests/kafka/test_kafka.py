"""Jobs between the topics of a real broker, which is killed and started again, with records that are no JSON.

{ (a.id, b.id) : |a.x - b.x| <= 2, |a.ts - b.ts| <= 1 minute }
"""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from tests.support.kafka import Broker

POISON: list[str | None] = ["{", "[1, 2]", '{"id": "x", "x": 1, "ts": "2026-01-05T09:30:00Z"}', None, ""]
NO_TIME = '{"id": 1, "x": 1}'
JOB = """\
sql = '''
SELECT ONLINE {columns} FROM a, b WHERE abs(a.x - b.x) <= 2 WITHIN 1 minute
'''
checkpoint = "checkpoint"
trigger = "100 milliseconds"

[model]
units = [1, 1]
{sources}
[sink]
{sink}

[spark]
"spark.jars" = "{jars}"
"spark.sql.session.timeZone" = "UTC"
"spark.sql.shuffle.partitions" = 2
"spark.ui.enabled" = false
"""
SOURCE = """
[sources.{alias}]
format = "kafka"
{decode}
event_time = "ts"
delay = "1 hour"
dead_letters = "dead/{alias}"
options = {{ "kafka.bootstrap.servers" = "{servers}", subscribe = "{topic}", startingOffsets = "earliest", \
maxOffsetsPerTrigger = 60, "kafka.isolation.level" = "read_committed", "kafka.metadata.max.age.ms" = "500" }}
"""
COLUMNS = "id LONG, x LONG, ts TIMESTAMP"
AVRO_SCHEMA = (
    '{"type": "record", "name": "tuple", "fields": ['
    '{"name": "id", "type": "long"}, {"name": "x", "type": "long"}, '
    '{"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}'
)
JSON = f'decode = "json"\nschema = "{COLUMNS}"'
AVRO = f"decode = \"avro\"\nschema_id = 7\nschema = '{AVRO_SCHEMA}'"
Tuple = tuple[int, int, int]
"""id, x, and the second of the event time."""


def draw(n: int, seed: int, first: int = 0) -> list[Tuple]:
    chance = random.Random(seed)
    return [(first + i, chance.randrange(60), first + i) for i in range(n)]


def encode(tuples: Sequence[Tuple]) -> list[str]:
    return [json.dumps({"id": id_, "x": x, "ts": spell(second)}) for id_, x, second in tuples]


def spell(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_767_605_400 + second))


def join(a: Sequence[Tuple], b: Sequence[Tuple]) -> Counter[tuple[int, int]]:
    return Counter((r[0], s[0]) for r in a for s in b if abs(r[1] - s[1]) <= 2 and abs(r[2] - s[2]) <= 60)


def write_job(
    folder: Path, broker: Broker, connector: str, columns: str, sink: str, decode: str = JSON
) -> Path:
    sources = "".join(
        SOURCE.format(alias=alias, decode=decode, servers=broker.servers, topic=f"{folder.name}-{alias}")
        for alias in "ab"
    )
    job = folder / "job.toml"
    job.write_text(JOB.format(columns=columns, sources=sources, sink=sink, jars=connector))
    return job


def start(job: Path, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "thetastream.app.cli", "run", str(job), "--json", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def catch_up(job: Path) -> list[dict[str, Any]]:
    """Run a job to the end of its input; return its epochs."""
    done = start(job, "--until-caught-up")
    out, errors = done.communicate(timeout=300)
    log = job.parent / "checkpoint.log"
    assert done.returncode == 0, errors + log.read_text()[-3000:]
    *epochs, total = map(json.loads, out.splitlines())
    assert total["total"]["epochs"] == len([epoch for epoch in epochs if "epoch" in epoch])
    return epochs


def test_two_topics_are_joined_into_a_third(broker: Broker, connector: str, tmp_path: Path) -> None:
    folder = tmp_path / "pairs"
    folder.mkdir()
    broker.make_topics("pairs-a", "pairs-b", "pairs-out")
    a, b = draw(150, 1), draw(150, 2)
    broker.send("pairs-a", [*encode(a[:70]), *POISON, *encode(a[70:]), NO_TIME])
    broker.send("pairs-b", [POISON[0], *encode(b)])
    options = f'"kafka.bootstrap.servers" = "{broker.servers}", topic = "pairs-out"'
    sink = f'format = "kafka"\noptions = {{ {options} }}'
    columns = "to_json(named_struct('a', a.id, 'b', b.id)) AS value"
    epochs = catch_up(write_job(folder, broker, connector, columns, sink))
    expected = join(a, b)
    values = [json.loads(text) for text in broker.receive("pairs-out", expected.total() + 1, timeout_s=5)]
    assert Counter((value["a"], value["b"]) for value in values) == expected
    # Every dead record is kept once, with its reason, and counted.
    dead = {alias: ds.dataset(list_committed(folder / "dead" / alias)).to_table() for alias in "ab"}
    assert Counter(dead["a"]["reason"].to_pylist()) == {
        "the value is not JSON of the schema": 4,
        "the record has no value": 1,
        "the event time is NULL": 1,
    }
    texts = [None if value is None else value.decode() for value in dead["a"]["value"].to_pylist()]
    assert Counter(texts) == Counter([*POISON, NO_TIME])
    assert dead["b"]["value"].to_pylist() == [b"{"]
    assert set(dead["a"]["topic"].to_pylist()) == {"pairs-a"}
    assert sum(epoch["dead_letters"] for epoch in epochs) == 7
    assert sum(epoch.get("matched", 0) for epoch in epochs) == expected.total()


def test_a_killed_job_and_a_killed_broker_lose_nothing(
    broker: Broker, connector: str, tmp_path: Path
) -> None:
    folder = tmp_path / "faults"
    folder.mkdir()
    broker.make_topics("faults-a", "faults-b", partitions=1)
    a, b = draw(400, 3), draw(400, 4)
    job = write_job(folder, broker, connector, "a.id AS a, b.id AS b", 'format = "parquet"\npath = "out"')
    broker.send("faults-a", encode(a[:200]))
    broker.send("faults-b", encode(b[:200]))
    # 1. The job is killed in an epoch.
    running = start(job)
    wait_for_epoch(running, 1)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    # 2. A topic gets another partition, and the broker is killed while the job runs.
    broker.add_partitions("faults-a", 3)
    broker.send("faults-a", [*encode(a[200:]), "poison"])
    running = start(job)
    wait_for_epoch(running, 1)
    broker.kill()
    time.sleep(2)
    broker.start()
    broker.send("faults-b", encode(b[200:]))
    wait_for_epoch(running, 1)
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    # 3. What is left is read.
    catch_up(job)
    table = ds.dataset(list_committed(folder / "out")).to_table()
    assert Counter(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True)) == join(a, b)
    assert ds.dataset(list_committed(folder / "dead" / "a")).to_table()["value"].to_pylist() == [b"poison"]


def test_a_topic_gets_each_pair_at_least_once(broker: Broker, connector: str, tmp_path: Path) -> None:
    """Spark's sink has no transactions, so a killed job may leave records of an epoch that runs again."""
    folder = tmp_path / "twice"
    folder.mkdir()
    broker.make_topics("twice-a", "twice-b", "twice-out")
    a, b = draw(300, 7), draw(300, 8)
    broker.send("twice-a", encode(a))
    broker.send("twice-b", encode(b))
    options = f'"kafka.bootstrap.servers" = "{broker.servers}", topic = "twice-out"'
    columns = "concat(a.id, '-', b.id) AS key, to_json(named_struct('a', a.id, 'b', b.id)) AS value"
    job = write_job(folder, broker, connector, columns, f'format = "kafka"\noptions = {{ {options} }}')
    for pause_s in (0.3, 0.6):
        running = start(job)
        wait_for_epoch(running, 1)
        time.sleep(pause_s)
        running.send_signal(signal.SIGKILL)
        running.communicate()
    catch_up(job)
    values = [json.loads(text) for text in broker.receive("twice-out", 1_000_000, timeout_s=5)]
    found = Counter((value["a"], value["b"]) for value in values)
    expected = join(a, b)
    assert not expected - found, "a pair is missing"
    assert set(found) == set(expected), "a pair is wrong"


def test_records_of_avro_with_the_number_of_their_schema(
    broker: Broker, connector: str, tmp_path: Path
) -> None:
    folder = tmp_path / "avro"
    folder.mkdir()
    broker.make_topics("avro-a", "avro-b")
    a, b = draw(60, 5), draw(60, 6)
    send_avro(broker, connector, "avro-a", a, "0000000007")
    send_avro(broker, connector, "avro-b", b, "0000000007")
    # Records of another schema, without a header, and cut off behind the header.
    send_avro(broker, connector, "avro-a", a[:2], "0000000008")
    send_avro(broker, connector, "avro-b", b[:3], "")
    broker.send("avro-a", ["{}", "\0\0\0\0\7"])
    sink = 'format = "parquet"\npath = "out"'
    catch_up(write_job(folder, broker, connector, "a.id AS a, b.id AS b", sink, AVRO))
    table = ds.dataset(list_committed(folder / "out")).to_table()
    assert Counter(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True)) == join(a, b)
    other, damaged = "the record is not of schema 7", "the value is not Avro of the schema"
    for alias, expected in (("a", {other: 3, damaged: 1}), ("b", {other: 3})):
        dead = ds.dataset(list_committed(folder / "dead" / alias)).to_table()
        assert Counter(dead["reason"].to_pylist()) == expected


def send_avro(broker: Broker, connector: str, topic: str, tuples: Sequence[Tuple], header: str) -> None:
    command = [sys.executable, "-m", "tests.support.avro_sender"]
    arguments = [broker.servers, topic, connector, AVRO_SCHEMA, COLUMNS, header]
    text = "\n".join(encode(tuples))
    subprocess.run(
        [*command, *arguments], input=text, text=True, check=True, capture_output=True, timeout=300
    )


def wait_for_epoch(running: "subprocess.Popen[str]", n: int) -> None:
    """Wait until a job has ended ``n`` epochs with tuples."""
    assert running.stdout is not None
    for line in running.stdout:
        n -= json.loads(line).get("tuples", 0) > 0
        if n == 0:
            return
    raise AssertionError(f"the job has ended: {running.communicate()[1]}")


def list_committed(folder: Path) -> list[str]:
    """List the files that Spark's sink has committed; an interrupted epoch may have left others."""
    paths: dict[str, None] = {}
    for log in (folder / "_spark_metadata").iterdir():
        if log.name.removesuffix(".compact").isdecimal():
            for line in log.read_text().splitlines()[1:]:
                paths[json.loads(line)["path"].removeprefix("file://")] = None
    return list(paths)
