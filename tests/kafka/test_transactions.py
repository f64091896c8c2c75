"""The function of the guide that sends snapshots of a store to a topic, in a process that is often killed."""

import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.support.kafka import Broker
from tests.support.service import HELD, add_epoch
from thetastream.stores import ParquetStore

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "environments.md"
MAIN = """
store = th.ParquetStore({store!r})
print("ready", flush=True)
send_snapshots(store, {topic!r}, {servers!r})
"""
SNAPSHOTS, ROWS, KILLS = 60, 500, 12


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
    (code,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if "def send_snapshots" in block
    )
    program = code + MAIN.format(store=store.path, topic="sent", servers=broker.servers)
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
