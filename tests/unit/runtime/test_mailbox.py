"""The mailbox, step by step: which files a crash between two steps leaves, and how the next run uses them."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.support.file_faults import limit_files
from thetastream.core.blocks import pack, unpack
from thetastream.core.columns import ANNOUNCEMENT, MESSAGE
from thetastream.core.errors import StateError
from thetastream.core.identity import Part, encode_identity
from thetastream.engine.inbox import Inbox, Message
from thetastream.runtime.inbox_rows import COLUMNS, ControlRows, list_rows, take_in
from thetastream.runtime.mailbox import outbox
from thetastream.runtime.mailbox.announcement import Announcement, check_messages, find_mailbox_name
from thetastream.runtime.mailbox.files import FORMAT, Mailbox, Row
from thetastream.runtime.state.manifest import NOTHING, LastEpoch, Manifest
from thetastream.spark.sources import mailbox
from thetastream.spark.sources.mailbox import MailboxReader

QUERY = {"the model": Part("Ring(nodes=2)", "Ring(nodes=2)"), "the condition": Part("a.k = b.k", "a.k=b.k")}
OTHER = {**QUERY, "the model": Part("Ring(nodes=3)", "Ring(nodes=3)")}
KEYS = [10, 20]
ALL = ReadAllAvailable()


def write_pages(*texts: str) -> list[pa.RecordBatch]:
    messages = [Message(text, pa.RecordBatch.from_pydict({"text": [text]})) for text in texts]
    return list(outbox.list_pages(messages, 3, KEYS))


def read(reader: MailboxReader, start: dict, end: dict) -> list[str]:
    n = len(KEYS)
    rows = [
        row
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    # The first rows tell each unit the name of the mailbox; then each unit gets each message.
    assert [(row["unit"], row["kind"]) for row in rows[:n]] == [(key, ANNOUNCEMENT) for key in KEYS]
    assert {Announcement.read(row["header"])[:2] for row in rows[:n]} == {(end["mailbox"], end["epoch"])}
    found = rows[n:]
    assert [row["unit"] for row in found] == KEYS * (len(found) // n)
    assert all(row["kind"] == MESSAGE for row in found)
    assert all(unpack(row["block"])["text"].to_pylist() == [row["header"]] for row in found)
    return [row["header"] for row in found[::n]]


def begin(root: Path) -> tuple[MailboxReader, dict, Mailbox]:
    """Start a reader, and run the first epoch of its query."""
    reader = MailboxReader(str(root), QUERY, KEYS)
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    assert reader.latestOffset(start, ALL) == start
    assert read(reader, start, start) == []
    return reader, start, Mailbox(str(root), start["mailbox"])


def test_messages_of_an_epoch_are_read_once_and_then_removed(tmp_path: Path) -> None:
    reader, start, box = begin(tmp_path)
    box.post(0, 1, write_pages("x"))
    box.post(0, 0, write_pages("y", "z"))
    end = reader.latestOffset(start, ALL)
    assert (end["epoch"], end["units"]) == (0, [0, 1])
    assert read(reader, start, end) == ["y", "z", "x"]
    assert reader.latestOffset(end, ALL) == end, "the offset must not move before an epoch sends messages"
    box.post(1, 1, write_pages("w"))
    reader.commit(end)
    later = reader.latestOffset(end, ALL)
    assert read(reader, end, later) == ["w"]
    reader.commit(later)
    assert {path.name for path in (tmp_path / box.name).iterdir()} == {"mailbox.json"}


def test_a_task_that_is_run_again_replaces_what_it_sent(tmp_path: Path) -> None:
    reader, start, box = begin(tmp_path)
    # 1. A crash before the write leaves no file, and a crash during the write leaves a temporary file.
    (tmp_path / box.name / "0").mkdir()
    (tmp_path / box.name / "0" / ".1.0a1b2c3d").write_bytes(b"half")
    assert reader.latestOffset(start, ALL) == start
    # 2. After a crash that follows the write, the epoch runs again. This time, unit 2 has no messages to
    #    send.
    box.post(0, 1, write_pages("first attempt"))
    box.post(0, 2, write_pages("first attempt"))
    box.post(0, 1, write_pages("second attempt"))
    box.post(0, 2, [])
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == ["second attempt"]


def test_every_run_of_a_checkpoint_finds_its_mailbox(tmp_path: Path) -> None:
    _, start, box = begin(tmp_path)
    box.post(0, 0, write_pages("x"))
    # 1. After a crash between epochs, the next run begins at the offset of the last committed epoch.
    reader = MailboxReader(str(tmp_path), QUERY, KEYS)
    end = reader.latestOffset(start, ALL)
    assert end["mailbox"] == start["mailbox"]
    # 2. After a crash during the epoch that reads, this epoch runs again with the offsets from the log.
    again = MailboxReader(str(tmp_path), QUERY, KEYS)
    assert read(again, start, end) == ["x"]
    # 3. After a crash of the first epoch, the log has its end offset, and the reader returns the initial
    #    offset again.
    first = MailboxReader(str(tmp_path), QUERY, KEYS)
    assert read(first, first.initialOffset(), start) == []
    assert first.latestOffset(start, ALL) == end


def test_refused_by_name(tmp_path: Path) -> None:
    _, start, box = begin(tmp_path)
    box.post(0, 0, write_pages("x"))
    reader = MailboxReader(str(tmp_path), QUERY, KEYS)
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
    label.write_text(json.dumps({"format": 99, "query": encode_identity(QUERY)}))
    refused("MAILBOX_FORMAT")
    for name, query in ((box.name, OTHER), ("another", QUERY)):
        label.write_text(json.dumps({"format": FORMAT, "name": name, "query": encode_identity(query)}))
        refused("MAILBOX_FOREIGN")
    label.unlink()
    refused("MAILBOX_MISSING")


def test_a_file_that_comes_back_after_its_offset_was_written_is_read(tmp_path: Path) -> None:
    """The driver lists the files before it writes the offset, and the file was gone at that moment."""
    reader, start, box = begin(tmp_path)
    box.post(0, 0, write_pages("x"))
    box.post(0, 1, write_pages("y"))
    file = tmp_path / box.name / "0" / "1"
    whole = file.read_bytes()
    file.unlink()
    end = reader.latestOffset(start, ALL)
    assert end["units"] == [0]
    assert read(reader, start, end) == ["x"]
    file.write_bytes(whole)
    assert read(reader, start, end) == ["x", "y"]


def test_messages_of_a_refused_epoch_are_not_read_before_those_of_the_epoch_before(tmp_path: Path) -> None:
    """A unit may write in an epoch that another unit refuses because its messages are lost."""
    _, start, box = begin(tmp_path)
    box.post(1, 1, write_pages("too early"))
    box.post(0, 0, write_pages("came back"))
    reader = MailboxReader(str(tmp_path), QUERY, KEYS)
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == ["came back"]
    box.post(1, 1, write_pages("in time"))
    reader.commit(end)
    assert read(reader, end, reader.latestOffset(end, ALL)) == ["in time"]


@pytest.mark.parametrize(
    ("announced", "hint"),
    [
        (Announcement("box", 7, [0, 2]), "it is gone; put it back\n"),
        (Announcement("box", 6, [0, 1, 2]), "put it back, remove the newest offset"),
        (None, "put it back, remove the newest offset"),
    ],
)
def test_a_unit_misses_what_it_sent(announced: Announcement | None, hint: str) -> None:
    sent = Manifest(LastEpoch(7, None), "box", None, has_sent=True)
    with pytest.raises(StateError, match=f"MAILBOX_DAMAGED.* s3://mail/box/7/1 must hold messages.*{hint}"):
        check_messages(sent, 8, 1, announced, "s3://key:secret@mail")
    check_messages(sent, 8, 1, Announcement("box", 7, [1]), "mail")
    check_messages(sent._replace(has_sent=False), 8, 1, announced, "mail")
    check_messages(Manifest(NOTHING, None, None), 8, 1, announced, "mail")


def test_the_name_of_a_mailbox_is_that_of_the_state() -> None:
    announced = Announcement("box", 7, [])
    assert find_mailbox_name(None, announced) == find_mailbox_name("box", None) == "box"
    with pytest.raises(StateError, match=r"MAILBOX_FOREIGN.* from mailbox other.* from box"):
        find_mailbox_name("other", announced)
    with pytest.raises(StateError, match="MAILBOX_MISSING"):
        find_mailbox_name(None, None)


def test_a_foreign_mailbox_says_what_changed(tmp_path: Path) -> None:
    box = Mailbox(str(tmp_path), "one")
    box.create(QUERY)
    with pytest.raises(StateError, match=r"the model was Ring\(nodes=2\), it is Ring\(nodes=3\)"):
        box.check(OTHER)


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="MAILBOX_UNUSABLE"):
        Mailbox(str(tmp_path / "file"), "one").create(QUERY)
    with pytest.raises(StateError, match="MAILBOX_UNUSABLE"):
        Mailbox("foo://bar", "one")


def test_a_full_disk_is_named_and_the_messages_come_again(tmp_path: Path) -> None:
    _, _, box = begin(tmp_path)
    expected = (
        rf"MAILBOX_UNUSABLE.*{tmp_path}/{box.name}.*unit 2.*File too large.*continues from its checkpoint"
    )
    with limit_files(10), pytest.raises(StateError, match=expected):
        box.post(0, 2, write_pages("x"))
    no_folder = tmp_path / box.name / "7"
    no_folder.write_text("")
    for use in (lambda: box.post(7, 2, write_pages("x")), lambda: box.find_next(6)):
        with pytest.raises(StateError, match=r"MAILBOX_UNUSABLE.*Make room"):
            use()
    no_folder.unlink()
    assert box.find_next(-1) == (-1, [])
    box.post(0, 2, write_pages("x"))
    assert box.find_next(-1) == (0, [2])


def test_a_uri_is_a_folder(tmp_path: Path) -> None:
    box = Mailbox(f"file://{tmp_path}", "one")
    box.create(QUERY)
    box.post(3, 0, write_pages("x"))
    assert Mailbox(str(tmp_path), "one").find_next(2) == (3, [0])


def test_messages_come_in_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Arrow array has at most 2 GiB, and a worker may send more than this."""
    size = len(pack(pa.RecordBatch.from_pydict({"text": ["abcdefgh"]})))
    monkeypatch.setattr(outbox, "BYTES_PER_PAGE", 2 * size)
    texts = ["a", "b", "c", "d" * 3 * size, "e"]
    batches = write_pages(*texts)
    assert [batch.num_rows for batch in batches] == [2, 1, 1, 1]
    reader, start, box = begin(tmp_path)
    box.post(0, 1, batches)
    assert read(reader, start, reader.latestOffset(start, ALL)) == texts


def test_a_mailbox_that_was_moved_delivers_no_message_again(tmp_path: Path) -> None:
    """The last epoch sent nothing, so only the root of the offset changes. Its messages are read and gone."""
    reader, start, box = begin(tmp_path / "before")
    box.post(0, 1, write_pages("a", "b"))
    middle = reader.latestOffset(start, ALL)
    assert read(reader, start, middle) == ["a", "b"]
    (tmp_path / "before").rename(tmp_path / "after")
    moved = MailboxReader(str(tmp_path / "after"), QUERY, KEYS)
    moved.commit(middle)
    end = moved.latestOffset(middle, ALL)
    assert end != middle
    assert read(moved, middle, end) == []
    Mailbox(str(tmp_path / "after"), box.name).post(2, 0, write_pages("c"))
    assert read(moved, end, moved.latestOffset(end, ALL)) == ["c"]


def test_many_messages_are_read_by_several_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, start, box = begin(tmp_path)
    for unit in range(4):
        box.post(0, unit, write_pages(f"{unit}" * 10))
    end = reader.latestOffset(start, ALL)
    assert len(reader.partitions(start, end)) == 1
    size = (tmp_path / box.name / "0" / "1").stat().st_size
    monkeypatch.setattr(mailbox, "BYTES_PER_TASK", 2 * size)
    assert [part.value["units"] for part in reader.partitions(start, end)] == [[0, 1], [2, 3]]
    assert read(reader, start, end) == [f"{unit}" * 10 for unit in range(4)]


def test_messages_are_sorted_whatever_the_frames_they_come_in() -> None:
    sent = [Row(0, slot << 32 | number, f"{slot}.{number}", b"", []) for slot in (0, 1) for number in (0, 1)]
    frames = [
        pd.DataFrame([(MESSAGE, *row[:4]) for row in part], columns=list(COLUMNS))
        for part in (sent[3:], sent[:0], sent[1:3], sent[:1])
    ]
    inbox = Inbox()
    assert take_in(inbox, list_rows(frames)) == ControlRows()
    assert [(message.header, message.sender) for message in inbox.messages] == [
        ("0.0", 0),
        ("0.1", 0),
        ("1.0", 1),
        ("1.1", 1),
    ]
