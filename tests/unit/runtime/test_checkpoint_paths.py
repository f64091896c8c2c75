"""The paths in a checkpoint that was moved or copied: Spark's are corrected, and no others are touched."""

import json
import shutil
from pathlib import Path

import pytest

import thetastream as th
from tests.support.kept_checkpoints import unpack
from thetastream.app import cli
from thetastream.core.errors import StateError

METADATA = "checkpoint/state/0/_metadata/v2/0"


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A checkpoint that a query made at another place."""
    (tmp_path / "before").mkdir()
    unpack("biclique", tmp_path / "before")
    shutil.move(tmp_path / "before", tmp_path / "after")
    return tmp_path / "after"


def read_schemas(folder: Path) -> list[str]:
    version, text = (folder / METADATA).read_text().split("\n", 1)
    assert version == "v2"
    return [path for store in json.loads(text)["stateStoreInfo"] for path in store["stateSchemaFilePaths"]]


def test_paths_are_corrected_once(moved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = {
        path: path.read_bytes()
        for path in moved.rglob("*")
        if path.is_file() and "_metadata" not in path.parts
    }
    assert all("/before/" in path for path in read_schemas(moved))
    (moved / METADATA).with_name(".0.crc").write_bytes(b"the checksum of before")
    assert cli.main(["update-paths", str(moved / "checkpoint")]) == 0
    assert capsys.readouterr().out == "1 file corrected\n"
    found = read_schemas(moved)
    assert found
    for path in found:
        assert path.startswith(f"file:{moved}/checkpoint/state/0/_stateSchema/")
        assert Path(path.removeprefix("file:")).exists()
    assert not (moved / METADATA).with_name(".0.crc").exists()
    assert th.checkpoints.update_paths(moved / "checkpoint") == 0
    assert {path: path.read_bytes() for path in others if path.name != ".thetastream.lock"} == others


def test_a_part_of_a_checkpoint_is_refused(moved: Path) -> None:
    before = (moved / METADATA).read_bytes()
    for path in (moved / "checkpoint/state/0/_stateSchema/default").iterdir():
        path.unlink()
    with pytest.raises(
        StateError, match=r"STATE_INCOMPLETE.*_stateSchema/default/.*copy the whole checkpoint"
    ):
        th.checkpoints.update_paths(moved / "checkpoint")
    assert (moved / METADATA).read_bytes() == before


def test_a_damaged_file_is_refused(moved: Path) -> None:
    for text in ("v2\n{", "v2\n[]", 'v2\n{"stateStoreInfo": [{}]}'):
        (moved / METADATA).write_text(text)
        with pytest.raises(StateError, match=r"STATE_INCOMPLETE.*_metadata/v2/0, and the file is damaged"):
            th.checkpoints.update_paths(moved / "checkpoint")


def test_a_folder_that_is_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert th.checkpoints.update_paths(tmp_path / "none") == 0
    assert cli.main(["update-paths", str(tmp_path)]) == 1
    assert "NO_CHECKPOINT" in capsys.readouterr().err
