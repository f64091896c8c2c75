"""The mailbox, step by step: what a crash between two of them leaves, what the next run makes of it."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from thetastream.errors import StateError
from thetastream.mailbox import Mailbox
from thetastream.spark import mailbox as spark_mailbox
from thetastream.spark.mailbox import HELLO, MailboxReader, pages

QUERY = {"model": "Ring(nodes=2)", "condition": "a.k = b.k"}
ALL = ReadAllAvailable()


def letters(*texts: str) -> list[pa.RecordBatch]:
    return pages([(0, 2, 7, text.encode()) for text in texts], [None] * len(texts))


def read(reader: MailboxReader, start: dict, end: dict) -> list[str]:
    (kind, *kinds), (_, *blocks) = zip(
        *(
            row
            for partition in reader.partitions(start, end)
            for batch in reader.read(partition)
            for row in zip(batch["kind"].to_pylist(), batch["block"].to_pylist(), strict=True)
        ),
        strict=True,
    )
    assert kind == HELLO
    assert set(kinds) <= {2}
    return [block.decode() for block in blocks]


def begun(root: Path) -> tuple[MailboxReader, dict, Mailbox]:
    """A reader whose query has run its first epoch."""
    reader = MailboxReader(str(root), QUERY)
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    assert reader.latestOffset(start, ALL) == start
    assert read(reader, start, start) == []
    return reader, start, Mailbox(str(root), start["mailbox"])


def test_messages_of_an_epoch_are_read_once_and_then_removed(tmp_path: Path) -> None:
    reader, start, box = begun(tmp_path)
    box.post(0, 1, letters("x"))
    box.post(0, 0, letters("y", "z"))
    end = reader.latestOffset(start, ALL)
    assert (end["epoch"], end["units"]) == (0, [0, 1])
    assert read(reader, start, end) == ["y", "z", "x"]
    assert reader.latestOffset(end, ALL) == end, "nothing new until an epoch sends something"
    box.post(1, 1, letters("w"))
    reader.commit(end)
    later = reader.latestOffset(end, ALL)
    assert read(reader, end, later) == ["w"]
    reader.commit(later)
    assert {path.name for path in (tmp_path / box.name).iterdir()} == {"mailbox.json"}


def test_a_task_that_is_run_again_replaces_what_it_sent(tmp_path: Path) -> None:
    reader, start, box = begun(tmp_path)
    # 1. A crash before the write leaves nothing, one within it a file without a name.
    (tmp_path / box.name / "0").mkdir()
    (tmp_path / box.name / "0" / ".1.0a1b2c3d").write_bytes(b"half")
    assert reader.latestOffset(start, ALL) == start
    # 2. A crash after it: the epoch runs again, here without anything to send in unit 2.
    box.post(0, 1, letters("first attempt"))
    box.post(0, 2, letters("first attempt"))
    box.post(0, 1, letters("second attempt"))
    box.post(0, 2, [])
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == ["second attempt"]


def test_every_run_of_a_checkpoint_finds_its_mailbox(tmp_path: Path) -> None:
    _, start, box = begun(tmp_path)
    box.post(0, 0, letters("x"))
    # 1. Crash between epochs: the next run begins at the offset of the last committed one.
    reader = MailboxReader(str(tmp_path), QUERY)
    end = reader.latestOffset(start, ALL)
    assert end["mailbox"] == start["mailbox"]
    # 2. Crash within the epoch that reads: its offsets are in the log, it runs again as it was.
    again = MailboxReader(str(tmp_path), QUERY)
    assert read(again, start, end) == ["x"]
    # 3. Crash of the very first epoch: the log has its end, its start is asked for anew.
    first = MailboxReader(str(tmp_path), QUERY)
    assert read(first, first.initialOffset(), start) == []
    assert first.latestOffset(start, ALL) == end


def test_refused_by_name(tmp_path: Path) -> None:
    _, start, box = begun(tmp_path)
    box.post(0, 0, letters("x"))
    reader = MailboxReader(str(tmp_path), QUERY)
    end = reader.latestOffset(start, ALL)
    file, label = tmp_path / box.name / "0" / "0", tmp_path / box.name / "mailbox.json"
    whole, said = file.read_bytes(), label.read_text()

    def refused(name: str) -> None:
        with pytest.raises(StateError) as error:
            read(reader, start, end)
        assert error.value.condition == name
        file.write_bytes(whole)
        label.write_text(said)
        assert read(reader, start, end) == ["x"]

    for damage in (whole[:-1], whole[1:], b"", whole[:40] + b"!" + whole[41:]):
        file.write_bytes(damage)
        refused("MAILBOX_DAMAGED")
    file.unlink()
    refused("MAILBOX_DAMAGED")
    label.write_text("{")
    refused("MAILBOX_DAMAGED")
    label.write_text(json.dumps({"format": 99, "query": QUERY}))
    refused("MAILBOX_FORMAT")
    label.write_text(json.dumps({"format": 1, "query": {**QUERY, "model": "Ring(nodes=3)"}}))
    refused("MAILBOX_FOREIGN")
    label.unlink()
    refused("MAILBOX_MISSING")


def test_a_foreign_mailbox_says_what_changed(tmp_path: Path) -> None:
    box = Mailbox(str(tmp_path), "one")
    box.create(QUERY)
    with pytest.raises(StateError, match=r"model: Ring\(nodes=2\) -> Ring\(nodes=3\)\. Start with"):
        box.check({**QUERY, "model": "Ring(nodes=3)"})


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="MAILBOX_UNUSABLE"):
        Mailbox(str(tmp_path / "file"), "one").create(QUERY)
    with pytest.raises(StateError, match="MAILBOX_UNUSABLE"):
        Mailbox("foo://bar", "one")


def test_a_uri_is_a_folder(tmp_path: Path) -> None:
    box = Mailbox(f"file://{tmp_path}", "one")
    box.create(QUERY)
    box.post(3, 0, letters("x"))
    assert Mailbox(str(tmp_path), "one").newest() == (3, [0])


def test_messages_come_in_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One Arrow array holds 2 GiB; a worker may send more."""
    monkeypatch.setattr(spark_mailbox, "BYTES_PER_PAGE", 5)
    texts = ["abc", "de", "f", "ghijklm", "n"]
    batches = letters(*texts)
    assert [batch.num_rows for batch in batches] == [2, 1, 1, 1]
    reader, start, box = begun(tmp_path)
    box.post(0, 1, batches)
    assert read(reader, start, reader.latestOffset(start, ALL)) == texts


def test_many_messages_are_read_by_several_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, start, box = begun(tmp_path)
    for unit in range(4):
        box.post(0, unit, letters(f"{unit}" * 10))
    end = reader.latestOffset(start, ALL)
    assert len(reader.partitions(start, end)) == 1
    size = (tmp_path / box.name / "0" / "1").stat().st_size
    monkeypatch.setattr(spark_mailbox, "BYTES_PER_TASK", 2 * size)
    assert [part.value["units"] for part in reader.partitions(start, end)] == [[0, 1], [2, 3]]
    assert read(reader, start, end) == [f"{unit}" * 10 for unit in range(4)]
