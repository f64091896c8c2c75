"""Folders that no other user of the machine may make, read or change; and no pickle is read from any file."""

import ast
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from thetastream.core.errors import SessionError
from thetastream.core.folder import Folder, make_private
from thetastream.core.identity import Part
from thetastream.runtime.mailbox.files import Mailbox
from thetastream.runtime.state import segment_cache
from thetastream.runtime.state.segment_cache import STALE_S, sweep

SOURCE = Path(__file__).parents[3] / "thetastream"
PUBLIC = 0o1777
"""The mode of /tmp."""


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A folder like /tmp: everybody can make files in it."""
    folder = tmp_path / "public"
    folder.mkdir()
    folder.chmod(PUBLIC)
    return folder


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make a function that gives a folder to another user. Only root may really do that."""

    def give_to_other(folder: Path) -> None:
        def lstat(path: Path) -> os.stat_result:
            found = os.lstat(path)
            if path != folder:
                return found
            values = [*found]
            values[stat.ST_UID] = 12_345
            return os.stat_result(values)

        monkeypatch.setattr(Path, "lstat", lstat)

    return give_to_other


def test_a_new_folder_is_private_and_an_open_one_is_closed(public: Path) -> None:
    make_private(public / "a" / "b")
    assert mode(public / "a" / "b") == 0o700
    (public / "c").mkdir()
    (public / "c").chmod(0o777)
    make_private(public / "c")
    assert mode(public / "c") == 0o700


def test_a_link_or_a_file_is_no_private_folder(public: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (public / "link").symlink_to(tmp_path / "elsewhere")
    (public / "loose").symlink_to(tmp_path / "nowhere")
    (public / "file").touch()
    for name in ("link", "loose", "file"):
        with pytest.raises(SessionError, match=rf"UNSAFE_FOLDER.*{name} is a link or a file"):
            make_private(public / name)


@pytest.mark.parametrize("inside", ["", "mailbox"])
def test_a_folder_that_another_user_made_first_is_refused(
    public: Path, inside: str, give: Callable[[Path], None]
) -> None:
    (public / "theirs").mkdir()
    give(public / "theirs")
    with pytest.raises(SessionError, match=r"UNSAFE_FOLDER.*theirs belongs to user 12345, and everybody can"):
        make_private(public / "theirs" / inside)


def test_a_folder_that_only_an_administrator_can_have_made_is_taken(
    tmp_path: Path, give: Callable[[Path], None]
) -> None:
    (tmp_path / "shared").mkdir()
    give(tmp_path / "shared")
    make_private(tmp_path / "shared" / "mine")
    assert mode(tmp_path / "shared" / "mine") == 0o700


def test_mailboxes_and_reports_are_private(public: Path) -> None:
    Mailbox(str(public / "mail"), "one").create({"the model": Part("m", "m")})
    Folder(str(public / "mail"), "reports").make(is_private=True)
    assert [mode(public / "mail" / name) for name in ("one", "reports")] == [0o700, 0o700]


def test_the_cache_is_refused_even_if_its_sweep_was_just_done(
    public: Path, give: Callable[[Path], None]
) -> None:
    """Whoever makes the folder can make its marker too."""
    root = public / "thetastream-0-boot"
    root.mkdir()
    (root / ".swept").touch()
    give(root)
    with pytest.raises(SessionError, match="UNSAFE_FOLDER"):
        sweep(root)


def test_a_sweep_does_not_follow_links(tmp_path: Path) -> None:
    root, kept = tmp_path / f"{segment_cache._family()}x", tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    sweep(root)
    (root / "link").symlink_to(kept)
    (root / "old").touch()
    before = time.time() - STALE_S - 60
    for name in ("link", "old", ".swept"):
        os.utime(root / name, (before, before), follow_symlinks=False)
    sweep(root)
    assert [path.name for path in root.iterdir()] == [".swept"]
    assert mode(root) == 0o700
    assert (kept / "file").exists()


def test_no_file_is_read_as_a_pickle() -> None:
    """Only the plan that Spark itself hands to a worker is unpickled, and what a service writes to its own
    process. Files hold JSON and Arrow."""
    unpickling = {
        f"{path.relative_to(SOURCE)}: {ast.unparse(node)}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in ("load", "loads", "Unpickler", "read_pickle"))
        and any(word in ast.unparse(node) for word in ("pickle", "marshal", "shelve", "joblib", "np."))
    }
    assert unpickling == {
        "spark/dataflow/processor.py: cloudpickle.loads",
        "service/statement_worker.py: pickle.loads",
    }
