"""Damages of the logs of a checkpoint are found without Spark, and refused before a query starts."""

import shutil
from pathlib import Path
from random import Random

import pytest

from tests.support.checkpoints import write_checkpoint, write_checksum
from tests.support.store_damage import DAMAGES, damage
from thetastream.core.errors import StateError
from thetastream.core.folder import Folder
from thetastream.runtime.checkpoint_files import find_damages, prepare_checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of three epochs with two sources of files, and with checksums."""
    path = write_checkpoint(tmp_path / "checkpoint", 2, 2, {"logOffset": 2}, {"logOffset": 2})
    for source in ("0", "1"):
        log = path / "sources" / source
        log.mkdir(parents=True)
        for number in range(3):
            line = f'{{"path":"file:///{source}/{number}.parquet","timestamp":1,"batchId":{number}}}'
            (log / f"{number}").write_text(f"v1\n{line}")
    for file in [path / "metadata", *(path / "commits").iterdir(), *(path / "sources").rglob("[0-9]")]:
        if file.is_file():
            write_checksum(file)
    assert find(path) == []
    return path


def find(checkpoint: Path) -> list[str]:
    return find_damages(Folder(str(checkpoint), ""))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("offsets/1", 'v1\n{"query', "offsets/1 cannot be read"),
        ("commits/2", "", "commits/2 does not begin with its version"),
        ("commits/2", "v1\n{}", "commits/2 does not fit its checksum"),
        ("metadata", "{}", "metadata cannot be read"),
        ("metadata", "7", "metadata cannot be read"),
        ("metadata", '{"id":"another"}', "metadata does not fit its checksum"),
        ("sources/1/2", 'v1\n{"path":"file:///x","batchId":1}', "sources/1/2 is that of another number"),
        ("sources/1/2", "v1\n7", "sources/1/2 is that of another number"),
    ],
)
def test_a_damaged_log_is_refused_by_the_name_of_its_file(
    checkpoint: Path, name: str, text: str, expected: str
) -> None:
    (checkpoint / name).write_text(text)
    assert [one[: len(expected)] for one in find(checkpoint)] == [expected]
    with pytest.raises(StateError, match=f"CHECKPOINT_DAMAGED.*{checkpoint}.*{expected}"):
        prepare_checkpoint(checkpoint)


def test_logs_of_two_sources_that_were_exchanged_are_found_by_their_checksums(checkpoint: Path) -> None:
    """Spark read them without an error, and the query found 451 pairs twice or not at all."""
    one, other = (checkpoint / "sources" / source / "2" for source in "01")
    content = one.read_bytes()
    shutil.copy(other, one)
    other.write_bytes(content)
    assert find(checkpoint) == [f"sources/{n}/2 does not fit its checksum" for n in "01"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('{"logOffset":1}\n{"logOffset":2}\n-', ["offsets/2 does not follow offsets/1"]),
        ('{"logOffset":2}\n{"logOffset":2}\n-\n{"logOffset":2}', ["offsets/2 does not follow offsets/1"]),
        ('-\n{"logOffset":3}\n{"logOffset":0}', []),
    ],
)
def test_offsets_of_another_epoch_are_found(checkpoint: Path, lines: str, expected: list[str]) -> None:
    """Spark ended with "assertion failed", or with a number of sources that the query does not have."""
    file = checkpoint / "offsets" / "2"
    file.write_text("\n".join([*file.read_text().splitlines()[:2], lines]))
    (checkpoint / "offsets" / ".2.crc").unlink()
    assert find(checkpoint) == expected


def test_an_epoch_whose_checksum_is_left_is_gone(checkpoint: Path) -> None:
    """Spark cannot write the file again beside it, and spoke of concurrent queries."""
    (checkpoint / "commits" / "2").unlink()
    assert find(checkpoint) == ["commits/2 is gone"]
    (checkpoint / "commits" / ".2.crc").unlink()
    assert find(checkpoint) == []


def test_a_file_that_is_gone_from_the_log_of_a_source_is_missed(checkpoint: Path) -> None:
    """The source would read the files again that it names."""
    log = checkpoint / "sources" / "1"
    (log / "1").unlink()
    assert find(checkpoint) == ["sources/1/1 is gone"]
    (log / "2").unlink()
    assert find(checkpoint) == ["sources/1/1 is gone", "sources/1/2 is gone"]
    # Spark removes the files that a compact one replaces.
    (log / "0").unlink()
    lines = [f'{{"path":"file:///1/{n}.parquet","timestamp":1,"batchId":{n}}}' for n in range(3)]
    (log / "2.compact").write_text("\n".join(["v1", *lines]))
    assert find(checkpoint) == []
    (checkpoint / "metadata").unlink()
    assert find(checkpoint) == ["metadata is gone"]


def test_no_damage_of_a_log_with_checksums_is_missed(checkpoint: Path) -> None:
    files = [path for path in checkpoint.rglob("*") if path.is_file() and path.suffix != ".crc"]
    files = [path for path in files if "state" not in path.parts]
    intact, random = {path: path.read_bytes() for path in files}, Random(1)
    for _ in range(200):
        done = damage(files, random.choice(DAMAGES), random)
        changed = [path for path in files if not path.exists() or path.read_bytes() != intact[path]]
        # An old epoch may be gone from the logs of epochs. The newest one leaves its checksum.
        counted = [
            path
            for path in changed
            if path.exists() or path.parent.name not in ("offsets", "commits") or path.name == "2"
        ]
        damaged = [path.relative_to(checkpoint).as_posix() for path in counted]
        assert sorted(one.split(" ")[0] for one in find(checkpoint)) == sorted(damaged), done
        for path, content in intact.items():
            path.write_bytes(content)


def test_what_other_sources_keep_is_their_own(checkpoint: Path) -> None:
    log = checkpoint / "sources" / "2"
    log.mkdir()
    (log / "0").write_bytes(b'\0v1\n{"topic":{"0":7}}')  # of Kafka
    assert find(checkpoint) == []
    write_checksum(log / "0")
    (log / "0").write_bytes(b'\0v1\n{"topic":{"0":9}}')
    assert find(checkpoint) == ["sources/2/0 does not fit its checksum"]


def test_a_checkpoint_without_checksums_or_in_an_object_store_is_not_refused(checkpoint: Path) -> None:
    for checksums in [*checkpoint.rglob(".*.crc")]:
        checksums.unlink()
    prepare_checkpoint(checkpoint)
    prepare_checkpoint(f"file://{checkpoint}")
    prepare_checkpoint("s3://bucket/checkpoint")
    prepare_checkpoint(checkpoint / "none")


DRAFT = "0.61b3e687-4346-4f94-9617-c216529e5768.tmp"


def test_drafts_of_the_first_offsets_are_removed(tmp_path: Path) -> None:
    """Spark refused to start a query whose driver had been killed before it renamed its first offsets."""
    offsets = tmp_path / "offsets"
    prepare_checkpoint(offsets.parent)
    (tmp_path / "metadata").write_text('{"id":"61b3e687-4346-4f94-9617-c216529e5768"}')
    offsets.mkdir()
    for name in (f".{DRAFT}", f"..{DRAFT}.crc", ".0.tmp"):
        (offsets / name).touch()
    prepare_checkpoint(f"file:{tmp_path}")
    assert [path.name for path in offsets.iterdir()] == [".0.tmp"]


def test_drafts_of_a_query_that_has_begun_are_left(checkpoint: Path) -> None:
    """They may belong to a driver that is running, and Spark does not look at them."""
    draft = checkpoint / "offsets" / f".{DRAFT}"
    draft.touch()
    prepare_checkpoint(checkpoint)
    assert draft.exists()
    assert find(checkpoint) == []
