"""Folders on this machine that no other user can have made, can change, or can replace.

Two things are checked for each folder of a path, from the private one up to the root:

1. Its owner, if everybody can write to the folder around it. Anybody can make a folder in ``/tmp``, also
   under the name that this user is about to use.
2. Whether everybody can rename it, and put another one in its place. They can if everybody can write to the
   folder around it, and if that one lacks the sticky bit, which ``/tmp`` has.

A folder of another owner is always refused. One that can be renamed is refused on the disks of a machine that
may have more users. In a container, and on file systems without modes (``vfat``, ``drvfs``), folders often
look as if everybody could write to them, although there is nobody else. There it is a warning.

The owners of the folders around a private one are trusted, and so are the members of a group that may write
to them: an administrator has chosen both.
"""

import atexit
import os
import re
import shutil
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_DISKS = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "reiserfs", "tmpfs", "xfs", "zfs"}
"""File systems of one machine that keep the owner and the mode of each folder."""
_MOUNTS = Path("/proc/self/mountinfo")
_WARNED: set[str] = set()
"""The folders of which ``_warn`` has warned.

This file is pickled by value, and a function with ``functools.cache`` would be pickled by reference.
"""


def make_private(folder: Path) -> None:
    """Make a folder that only this user may enter, or take one that is there.

    Raises
    ------
    SessionError
        UNSAFE_FOLDER.
    OSError
        If the folder cannot be made.
    """
    path = folder.absolute()
    _make_around(path.parent)
    with suppress(FileExistsError):  # A link to nothing exists too.
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        _refuse(f"{path} is a link or a file")
    refuse_unsafe(path)
    if found.st_mode & 0o077 and found.st_uid == os.getuid():
        path.chmod(0o700)


def make_temporary(prefix: str) -> Path:
    """Make a private folder for temporary files, which is removed at exit.

    Raises
    ------
    SessionError
        UNSAFE_FOLDER.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    refuse_unsafe(folder)
    return folder


def refuse_unsafe(path: Path) -> None:
    """Refuse the path of a folder or file that other users may have made or could replace, or warn of it.

    Raises
    ------
    SessionError
        UNSAFE_FOLDER.
    """
    path = path.absolute()
    # If a folder of the path is a link, both the link and its target must be safe.
    for each in dict.fromkeys((*_list_path(path), *_list_path(path.resolve()))):
        owner, above = each.lstat().st_uid, each.parent.stat()
        if not above.st_mode & stat.S_IWOTH:
            continue
        if owner not in (0, os.getuid()):
            _refuse(f"{each} belongs to user {owner}, and everybody can write to {each.parent}")
        if not above.st_mode & stat.S_ISVTX and _is_reachable(each.parent):
            what = f"everybody can rename {each}, because {each.parent} lacks the sticky bit (chmod +t)"
            if _has_users(each.parent):
                _refuse(what)
            _warn(what)


def _list_path(path: Path) -> Iterator[Path]:
    """Yield a path, and the folders around it but the root."""
    return (each for each in (path, *path.parents) if each != each.parent)


def _make_around(folder: Path) -> None:
    """Make the folders around a private one. Others cannot write to them, also if the umask of this process
    would let them."""
    if not folder.exists():
        _make_around(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o775)


def _is_reachable(folder: Path) -> bool:
    """Whether other users may enter all folders of this path."""
    folder = folder.resolve()
    return all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.parents))


def _has_users(folder: Path) -> bool:
    """Whether a folder is on a disk of a machine that may have more users.

    The root of a container is usually an overlay. Where the mounts cannot be read, as on macOS, the modes of
    a folder may mean nothing.
    """
    kinds = {}
    with suppress(OSError):
        for line in _MOUNTS.read_text().splitlines():
            mount, _, source = line.partition(" - ")
            place = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount.split()[4])
            kinds[Path(place)] = source.split()[0]
    if kinds.get(Path("/")) not in _DISKS:
        return False
    folder = folder.resolve()
    return next(kinds[each] for each in (folder, *folder.parents) if each in kinds) in _DISKS


def _refuse(what: str) -> NoReturn:
    from thetastream.core.errors import SessionError

    hint = (
        "remove it, or name another folder (cache_folder=, mailbox=, spark.local.dir, TMPDIR, XDG_CACHE_HOME)"
    )
    raise SessionError("UNSAFE_FOLDER", f"only this user may change a private folder, but {what}; {hint}")


def _warn(what: str) -> None:
    """Warn once of a folder that others could replace, if there are others."""
    if what not in _WARNED:
        _WARNED.add(what)
        warnings.warn(
            f"{what}: other users of this machine could read and replace the files in it",
            UserWarning,
            stacklevel=4,
        )
