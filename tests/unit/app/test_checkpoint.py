"""What ``thetastream inspect`` reads in a checkpoint.."""

import json
from pathlib import Path

import pytest

from tests.support.checkpoints import write_checkpoint
from thetastream.app import cli
from thetastream.app.job.checkpoint import describe_checkpoint, read_checkpoint
from thetastream.core.errors import ThetastreamError
from thetastream.core.identity import Part
from thetastream.spark.sources.identity import WRITER, IdentityReader
from thetastream.spark.sources.mailbox import MailboxReader

QUERY = {
    "stream 'a'": Part("[]", "id bigint, ts timestamp", "columns"),
    "the event time of 'a'": Part("ts", "ts"),
    "the condition": Part("{}", "a.id < b.id"),
    "the window": Part("[[-9, 9]]", "9 microseconds", "narrower"),
    "the model": Part("Split(cores=2)", "Split(cores=2)"),
    "spark.sql.ansi.enabled": Part("true", "true"),
}
WIDE = {**QUERY, "stream 'b'": Part("[]", ", ".join(f"column_{n} string" for n in range(1000)), "columns")}


def test_epochs_watermark_and_identity(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "c", 12, 11, {"logOffset": 3}, IdentityReader(QUERY).initialOffset())
    found = read_checkpoint(str(path))
    assert (found.query, found.begun, found.committed, found.watermark_ms) == ("eb16ab27", 12, 11, 11_000)
    assert (found.partitions, found.n_sources, found.state_files, found.state_bytes) == (3, 2, 1, 2_000_000)
    (join,) = found.joins
    assert join.identity == QUERY
    assert (join.written_by, join.state_format) == (WRITER["thetastream"], WRITER["state"])
    lines = describe_checkpoint(found).splitlines()
    for line in (
        "epochs        epoch 11 is committed, and epoch 12 runs again at the next start",
        "watermark     1970-01-01T00:00:11.000+00:00",
        "state         2.0 MB in 1 files",
        f"written by    Thetastream {WRITER['thetastream']}",
        f"state format  {WRITER['state']}",
        "stream 'a'    id bigint, ts timestamp; event time ts",
        "model         Split(cores=2)",
        "setting       spark.sql.ansi.enabled = true",
    ):
        assert line in lines


def test_a_mailbox_is_found_and_its_secrets_are_not(tmp_path: Path) -> None:
    root = "s3://key:secret@bucket/mail?region=x"
    offset = {**MailboxReader(root, WIDE, [1]).initialOffset(), "epoch": 4, "units": [0, 2]}
    path = write_checkpoint(tmp_path / "c", 5, 5, offset)
    assert "secret" not in json.dumps(offset)
    (join,) = read_checkpoint(str(path)).joins
    assert join.mailbox is not None
    assert (join.mailbox.root, join.mailbox.name) == ("s3://bucket/mail", offset["mailbox"])
    assert f"s3://bucket/mail/{offset['mailbox']}, messages of 2 units of epoch 4" in describe_checkpoint(
        read_checkpoint(str(path))
    )


def test_a_query_of_others_and_one_that_has_not_begun(tmp_path: Path) -> None:
    other = describe_checkpoint(
        read_checkpoint(str(write_checkpoint(tmp_path / "other", 0, -1, {"logOffset": 3})))
    )
    assert "joins       none of Thetastream" in other
    assert "no epoch is committed, and epoch 0 runs again" in other
    new = describe_checkpoint(read_checkpoint(str(write_checkpoint(tmp_path / "new", -1, -1))))
    assert "epochs      none" in new


@pytest.mark.parametrize("damage", ["metadata", "offsets/1", "commits/1"])
def test_a_damaged_checkpoint_is_refused_by_name(damage: str, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "c", 1, 1, IdentityReader(QUERY).initialOffset())
    (path / damage).write_text('v1\n{"query')
    with pytest.raises(ThetastreamError, match=f"NO_CHECKPOINT.*{damage} (cannot be read|does not begin)"):
        read_checkpoint(str(path))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_checkpoint(tmp_path / "c", 1, 1, IdentityReader(QUERY).initialOffset())
    assert cli.main(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["joins"][0]["parts"]["the model"] == "Split(cores=2)"
    assert cli.main(["inspect", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"thetastream: [NO_CHECKPOINT] {tmp_path} must be")
