"""Records of Debezium in topics of a real broker, joined by a job into a store, with a restart between them.

{ (o.id, f.id) : o.price = f.price } over the rows that hold
"""

import json
from pathlib import Path
from typing import Any

from tests.kafka.test_kafka import JOB, catch_up
from tests.support.kafka import Broker
from thetastream.stores import ParquetStore

SOURCE = """
[sources.{alias}]
format = "kafka"
changes = {{ format = "debezium", row = "id INT, price DOUBLE, at BIGINT"{more} }}
select = ["id", "price", "timestamp_micros(at) AS ts"]
event_time = "ts"
delay = "1 hour"
options = {{ "kafka.bootstrap.servers" = "{servers}", subscribe = "{topic}", startingOffsets = "earliest", \
maxOffsetsPerTrigger = 4 }}
"""
Row = dict[str, Any]


def order(id_: int, price: float) -> Row:
    return {"id": id_, "price": price, "at": 1_767_605_405_000_000 + id_, "note": "not read"}


def write(op: str, before: Row | None, after: Row | None, has_schema: bool = False) -> str:
    envelope = {"before": before, "after": after, "op": op, "source": {"lsn": 23}, "ts_ms": 1_767_605_406_000}
    return json.dumps({"schema": {"type": "struct"}, "payload": envelope} if has_schema else envelope)


def test_a_store_follows_the_tables_of_a_database(broker: Broker, connector: str, tmp_path: Path) -> None:
    broker.make_topics("orders", partitions=2)
    broker.make_topics("fills", partitions=1)
    sources = "".join(
        SOURCE.format(alias=alias, topic=topic, more=more, servers=broker.servers)
        for alias, topic, more in (("o", "orders", ""), ("f", "fills", ', key = "id", sequence = "offset"'))
    )
    sql = "SELECT o.id AS o, f.id AS f FROM o JOIN f ON o.price = f.price WITHIN 1 hour"
    job = JOB.format(columns="", sources=sources, sink='store = "parquet"\npath = "store"', jars=connector)
    (tmp_path / "job.toml").write_text(job.replace(job.split("'''")[1], f"\n{sql}\n"))
    store = ParquetStore(str(tmp_path / "store"))

    def run() -> list[tuple[int, int]]:
        catch_up(tmp_path / "job.toml")
        return sorted((row["o"], row["f"]) for row in store.read().to_pylist())

    # 1. The snapshot, and rows that are inserted. Fills come twice, as after a crash of Debezium.
    broker.send("orders", [write("r", None, order(n, float(n % 3)), has_schema=True) for n in range(6)])
    fills = [write("c", None, order(10 + n, float(n))) for n in range(3)]
    broker.send("fills", [*fills, *fills])
    assert run() == [(0, 10), (1, 11), (2, 12), (3, 10), (4, 11), (5, 12)]
    # 2. Updates with the row before, and without it by key; deletes, with their tombstones.
    broker.send("orders", [write("u", order(0, 0.0), order(0, 2.0)), write("d", order(1, 1.0), None), None])
    broker.send("fills", [write("u", None, order(10, 7.0)), write("d", {"id": 11}, None), None, fills[2]])
    assert run() == [(0, 12), (2, 12), (5, 12)]
    assert len(store.read(changes=True)) > 9
