"""Folders on mounts that cannot flush the names of files."""

import errno
import os
import stat
import warnings
from pathlib import Path

import pytest

from thetastream.core.folder import Folder


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_mount_that_cannot_flush_folders_warns_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    flush = os.fsync

    def refuse(number: int) -> None:
        if stat.S_ISDIR(os.fstat(number).st_mode):
            raise OSError(code, os.strerror(code))
        flush(number)

    monkeypatch.setattr(os, "fsync", refuse)
    folder = Folder(str(tmp_path), "")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        if code == errno.EIO:
            with pytest.raises(OSError, match="Input/output"):
                folder.write_new("a", b"1")
            return
        assert folder.write_new("a", b"1")
        assert folder.write_new("b", b"2")
    assert ["fsync" in str(one.message) for one in found] == [True]
