"""The functions of the guide that send results to a topic in transactions, in processes that are killed."""

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.support.faults import environment_of_processes, killed_at_the_end, oracle, write_streams
from tests.support.kafka import Broker
from tests.support.service import HELD, add_epoch
from thetastream.stores import ParquetStore

PAGE = Path(__file__).parents[2] / "docs" / "running" / "environments.md"
MAIN = """
store = th.ParquetStore({store!r})
print("ready", flush=True)
send_snapshots(store, {topic!r}, {servers!r})
"""
SNAPSHOTS, ROWS, KILLS = 60, 500, 12
DIES_AT = (("before", 2), ("after", 1), ("after", 3), ("before", 1))
"""For each start of the query, when it is killed: before or after the n-th commit of a transaction."""
NEVER, FILES = ("never", 0), 12
QUERY = """
import os, signal
import confluent_kafka
import thetastream as th
from tests.support.faults import Job


class Dying(confluent_kafka.Producer):
    n = 0

    def commit_transaction(self):
        Dying.n += 1
        if Dying.n == {n} and {when!r} == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit_transaction()
        if Dying.n == {n} and {when!r} == "after":
            os.kill(os.getpid(), signal.SIGKILL)


confluent_kafka.Producer = Dying
job = Job({folder!r})
writer = job.pairs(th.local_session(2)).writeStream.foreachBatch(send_epochs_to({topic!r}, {servers!r}))
writer = writer.option("checkpointLocation", str(job.checkpoint)).trigger(availableNow=True)
writer.start().awaitTermination()
"""


def read_code(name: str) -> str:
    """Read the code of the guide that defines a function."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (code,) = (block for block in blocks if f"def {name}" in block)
    return str(code)


def read_values(servers: str, topic: str, isolation: str) -> Counter[str]:
    """Read a topic until nothing more comes."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"reader-{isolation}",
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found: Counter[str] = Counter()
    while messages := consumer.consume(10_000, timeout=5):
        for message in messages:
            assert message.error() is None
            found[message.value().decode()] += 1
    consumer.close()
    return found


def test_a_killed_sender_sends_each_row_once(broker: Broker, tmp_path: Path) -> None:
    chance, store = random.Random(1), ParquetStore(str(tmp_path / "store"))
    store.describe(HELD)
    broker.make_topics("sent")
    program = read_code("send_snapshots")
    program += MAIN.format(store=store.path, topic="sent", servers=broker.servers)
    for epoch in range(SNAPSHOTS):
        add_epoch(store, epoch, *range(epoch * ROWS, (epoch + 1) * ROWS))
    for _ in range(KILLS):
        sender = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert sender.stdout is not None
        assert sender.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.3, 1.2))
        sender.kill()
        sender.wait()
        sender.stdout.close()
    sender = subprocess.Popen([sys.executable, "-c", program])
    try:
        end = time.monotonic() + 120
        while (found := read_values(broker.servers, "sent", "read_committed")).total() < SNAPSHOTS * ROWS:
            assert time.monotonic() < end
    finally:
        sender.kill()
        sender.wait()
    assert len(found) == SNAPSHOTS * ROWS
    assert set(found.values()) == {1}
    assert read_values(broker.servers, "sent", "read_uncommitted").total() > SNAPSHOTS * ROWS, (
        "no kill struck"
    )


def test_a_killed_query_sends_each_row_once(broker: Broker, tmp_path: Path) -> None:
    write_streams(tmp_path, FILES, 100)
    broker.make_topics("epochs")
    for when, n in (*DIES_AT, NEVER):
        places = {"folder": str(tmp_path), "topic": "epochs", "servers": broker.servers}
        program = read_code("send_epochs_to") + QUERY.format(when=when, n=n, **places)
        command = [sys.executable, "-c", program]
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment_of_processes(), start_new_session=True
            )
        with killed_at_the_end(process):
            code = process.wait(300)
        text = (tmp_path / "log").read_text()[-4000:]
        assert code == (0 if (when, n) == NEVER else -signal.SIGKILL), text
    committed = read_values(broker.servers, "epochs", "read_committed")
    expected = Counter(json.dumps({"a": a, "b": b}) for a, b in oracle(tmp_path).elements())
    assert committed == expected
    everything = read_values(broker.servers, "epochs", "read_uncommitted")
    assert everything.total() > expected.total(), "no transaction was broken off"
