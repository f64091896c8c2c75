"""Folders that no other user of the machine may make, read or change; and no pickle is read from any file."""

import ast
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from thetastream.core import private_folder
from thetastream.core.errors import SessionError
from thetastream.core.folder import Folder
from thetastream.core.identity import Part
from thetastream.core.private_folder import make_private, make_temporary
from thetastream.runtime.mailbox.files import Mailbox
from thetastream.runtime.state import segment_cache
from thetastream.runtime.state.segment_cache import STALE_S, sweep

SOURCE = Path(__file__).parents[3] / "thetastream"
PUBLIC = 0o1777
"""The mode of /tmp."""
REPLACED = r"everybody can rename .*, because .*shared lacks the sticky bit"
DISK, CONTAINER = "ext4 /dev/vda rw", "overlay overlay rw,lowerdir=/a:/b"


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


def test_a_link_is_as_safe_as_its_target(public: Path, tmp_path: Path, give: Callable[[Path], None]) -> None:
    (public / "theirs").mkdir()
    (tmp_path / "link").symlink_to(public / "theirs")
    give(public / "theirs")
    with pytest.raises(SessionError, match=r"UNSAFE_FOLDER.*theirs belongs to user 12345, and everybody can"):
        make_private(tmp_path / "link" / "mine")


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which everybody can rename everything, in a place that everybody can reach."""
    monkeypatch.setattr(private_folder, "_is_reachable", lambda folder: True)
    folder = tmp_path / "a disk" / "shared"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    return folder


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a function that says what is mounted where: (place, kind and source)."""

    def set_mounts(*mounts: tuple[Path | str, str]) -> None:
        lines = [
            f"{number} 1 254:0 / {str(place).replace(' ', chr(92) + '040')} rw shared:1 - {kind}"
            for number, (place, kind) in enumerate(mounts)
        ]
        (tmp_path / "mounts").write_text("\n".join(lines))
        monkeypatch.setattr(private_folder, "_MOUNTS", tmp_path / "mounts")

    return set_mounts


@pytest.mark.parametrize("inside", ["mine", "mine/mailbox"])
def test_a_folder_that_everybody_can_replace_is_refused(
    shared: Path, inside: str, mount: Callable[..., None]
) -> None:
    mount(("/", DISK))
    with pytest.raises(SessionError, match=rf"UNSAFE_FOLDER.*{REPLACED}"):
        make_private(shared / inside)
    shared.chmod(PUBLIC)
    make_private(shared / inside)


@pytest.mark.parametrize(
    "mounts",
    [
        pytest.param([("/", CONTAINER)], id="container"),
        pytest.param([("/", CONTAINER), ("a disk", DISK)], id="volume of a container"),
        pytest.param([("/", DISK), ("a disk", "vfat /dev/sdb rw")], id="no modes"),
        pytest.param([], id="another system"),
    ],
)
def test_where_nobody_else_may_be_it_is_one_warning(
    shared: Path, mounts: list[tuple[str, str]], mount: Callable[..., None], tmp_path: Path
) -> None:
    mount(*((place if place == "/" else tmp_path / place, kind) for place, kind in mounts))
    with pytest.warns(UserWarning, match=REPLACED):
        make_private(shared / "mine")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_private(shared / "mine")
    assert mode(shared / "mine") == 0o700


@pytest.mark.parametrize("around", [PUBLIC, 0o2775], ids=["sticky", "team"])
def test_folders_of_a_team_and_sticky_ones_are_taken(
    shared: Path, around: int, mount: Callable[..., None]
) -> None:
    mount(("/", DISK))
    shared.chmod(around)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_private(shared / "mine")


def test_a_place_that_nobody_else_can_reach_is_taken(tmp_path: Path, mount: Callable[..., None]) -> None:
    mount(("/", DISK))
    home = tmp_path / "home"
    home.mkdir(mode=0o750)
    (home / "open").mkdir()
    (home / "open").chmod(0o777)
    assert private_folder._is_reachable(Path("/"))
    make_private(home / "open" / "mine")


def test_folders_around_a_private_one_are_not_made_for_everybody(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o775, 0o775, 0o700]


def test_temporary_folders_are_checked_too(
    shared: Path, mount: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    mount(("/", DISK))
    with pytest.raises(SessionError, match=rf"UNSAFE_FOLDER.*{REPLACED}"):
        make_temporary("thetastream-")
    shared.chmod(PUBLIC)
    assert mode(make_temporary("thetastream-")) == 0o700


def test_no_other_file_makes_temporary_folders() -> None:
    making = {
        f"{path.relative_to(SOURCE)}: {name}"
        for path in SOURCE.rglob("*.py")
        for name in ("mkdtemp", "mkstemp", "TemporaryDirectory", "NamedTemporaryFile", "mktemp")
        if name in path.read_text()
    }
    assert making == {
        "core/private_folder.py: mkdtemp",
        # It is checked there.
        "service/statement_pool.py: TemporaryDirectory",
        # It holds rows that this file has made up.
        "app/cli/small.py: TemporaryDirectory",
    }


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
