"""A folder that driver and workers share: a path, or a URI that Arrow opens (``hdfs:``, ``s3:``, ``file:``).

A file appears under its name with all its content or not at all.
"""

import errno
import os
import re
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
from pyarrow import fs

from thetastream.core.addresses import hide_secrets
from thetastream.core.private_folder import make_private

AGAIN = (
    "Make room on its disk, or let this user read and write there, and start the query again: it continues "
    "from its checkpoint, and nothing is lost"
)
"""What to do if a query has ended because a folder could not be used."""
_WARNED: set[str] = set()
"""The folders of which ``_warn_of_folder`` has warned."""
_HDFS_HINT = (
    "install Hadoop on each host and set ARROW_LIBHDFS_DIR, JAVA_HOME and CLASSPATH, or use a folder that "
    'all hosts mount, as in "file:/shared/...", or an object store ("s3://...")'
)
_VARIABLES = {
    **dict.fromkeys(("s3", "s3a"), ("AWS_", "ARROW_")),
    **dict.fromkeys(("gs", "gcs"), ("GOOGLE_", "CLOUDSDK_")),
    **dict.fromkeys(("abfs", "abfss"), ("AZURE_",)),
    **dict.fromkeys(("hdfs", "viewfs"), ("HADOOP_", "JAVA_", "CLASSPATH", "ARROW_", "KRB5", "LIBHDFS_")),
}


def refuse(condition: str, message: str) -> NoReturn:
    """Raise a StateError."""
    from thetastream.core.errors import StateError

    raise StateError(condition, message)


@contextmanager
def refuse_unusable(condition: str, what: str, hint: str = AGAIN) -> Iterator[None]:
    """Raise an error of ours if the block cannot use a folder.

    Raises
    ------
    StateError
        With this condition.
    """
    try:
        yield
    except OSError as error:
        refuse(condition, f"{what}: {error}. {hint}")


class Folder:
    """One folder inside ``root``.

    Parameters
    ----------
    root : str
        Path or URI, the same for the driver and all workers.
    name : str
        Path of the folder inside ``root``.

    Raises
    ------
    ArrowInvalid, OSError
        If Arrow cannot open the URI, for example because a host lacks the library for HDFS.
    """

    def __init__(self, root: str, name: str) -> None:
        if is_uri(root):
            # Spark's name for the same store is s3a.
            self._fs, path = _open_uri(re.sub("^s3a:", "s3:", root))
        else:
            self._fs, path = fs.LocalFileSystem(), root
        self._folder = f"{path.rstrip('/')}/{name}".rstrip("/")

    @property
    def filesystem(self) -> fs.FileSystem:
        """The file system of the folder."""
        return self._fs

    def locate(self, name: str) -> str:
        """Return the path of a file in ``filesystem``."""
        return f"{self._folder}/{name}"

    def make(self, is_private: bool = False) -> None:
        """Make the folder. If it is private, no other user of this machine may read it."""
        if is_private and isinstance(self._fs, fs.LocalFileSystem):
            make_private(Path(self._folder))
        self._fs.create_dir(self._folder, recursive=True)

    def list_files(self, inside: str = "") -> dict[str, tuple[int, int]]:
        """List the files of a folder inside this one: name -> (time of the last change, size)."""
        selector = fs.FileSelector(f"{self._folder}/{inside}".rstrip("/"), allow_not_found=True)
        return {
            info.base_name: (info.mtime_ns or 0, info.size or 0) for info in self._fs.get_file_info(selector)
        }

    def measure(self, inside: str) -> tuple[int, int]:
        """Count the files of a folder inside this one, and of all folders in it: (files, bytes)."""
        selector = fs.FileSelector(f"{self._folder}/{inside}", allow_not_found=True, recursive=True)
        sizes = [info.size or 0 for info in self._fs.get_file_info(selector) if info.is_file]
        return len(sizes), sum(sizes)

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        found: bool = self._fs.get_file_info(f"{self._folder}/{name}").type == fs.FileType.File
        return found

    def read(self, name: str) -> bytes:
        """Read a file."""
        with self._fs.open_input_stream(f"{self._folder}/{name}") as file:
            data: bytes = file.read()
        return data

    def write(self, name: str, *pieces: bytes | pa.Buffer, is_durable: bool = False) -> None:
        """Write a file, in place of an earlier one of the same name.

        A durable file is there with all its content after a power cut (``flush``).
        """
        path = f"{self._folder}/{name}"
        temporary = self._write_temporary(path, *pieces)
        if is_durable:
            self.flush(temporary)
        try:
            self._fs.move(temporary, path)
        except OSError:
            if not self.exists(name):
                raise
            # HDFS refuses to rename a file to a name that exists.
            self._fs.delete_file(path)
            self._fs.move(temporary, path)
        if is_durable:
            self.flush()

    def flush(self, path: str = "") -> None:
        """Wait until a file of a local file system is on the disk; without a path, until the names in this
        folder are.

        Arrow cannot request this of other file systems.
        """
        if isinstance(self._fs, fs.LocalFileSystem):
            number = os.open(path or self._folder, os.O_RDONLY)
            try:
                os.fsync(number)
            except OSError as error:
                if path or error.errno not in (errno.EINVAL, errno.ENOTSUP):
                    raise
                _warn_of_folder(self._folder)
            finally:
                os.close(number)

    def remove(self, name: str = "") -> None:
        """Remove a file of this folder, or a folder and all that is in it; without a name, this folder."""
        path = f"{self._folder}/{name}".rstrip("/")
        if self._fs.get_file_info(path).type == fs.FileType.Directory:
            self._fs.delete_dir(path)
        else:
            self._fs.delete_file(path)

    def write_new(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one of this name, and return whether it was written.

        If several callers write the same name at the same time, one of them writes the file. This holds only
        on local file systems, which refuse a link to a name that exists, and on HDFS, which refuses to rename
        a file to such a name. On a local file system, the file is on the disk when this method returns.
        """
        if self.exists(name):
            return False
        path = f"{self._folder}/{name}"
        temporary = self._write_temporary(path, data)
        self.flush(temporary)
        is_local = isinstance(self._fs, fs.LocalFileSystem)
        try:
            if is_local:
                os.link(temporary, path)
            else:
                self._fs.move(temporary, path)
        except OSError:
            self._fs.delete_file(temporary)
            if not self.exists(name):
                raise
            return False
        if is_local:
            self._fs.delete_file(temporary)
        self.flush()
        return True

    def _write_temporary(self, path: str, *pieces: bytes | pa.Buffer) -> str:
        head, _, tail = path.rpartition("/")
        # Spark does not read files whose names begin with a dot.
        temporary = f"{head}/.{tail}.{uuid.uuid4().hex[:8]}"
        with self._fs.open_output_stream(temporary) as file:
            for piece in pieces:
                file.write(piece)
        return temporary


def _warn_of_folder(folder: str) -> None:
    """Warn once that the names in a folder may be lost in a power cut.

    This file is pickled by value, and a function with ``functools.cache`` would be pickled by reference.
    """
    if folder in _WARNED:
        return
    _WARNED.add(folder)
    what = f"the file system of {folder} cannot wait until the names of files are on the disk (fsync)"
    warnings.warn(f"{what}: a power cut may take back the last commits", UserWarning, stacklevel=3)


def _open_uri(uri: str) -> tuple[fs.FileSystem, str]:
    """Open the file system of a URI.

    Arrow lists dozens of paths when it does not find the native library of Hadoop, and says nothing else. So
    the error says what is missing. And Arrow shows a URI that it cannot read with its password.

    Raises
    ------
    ArrowInvalid
        If Arrow cannot read the URI, or does not know its scheme.
    OSError
        If the file system does not answer.
    """
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(uri)
    except ValueError:
        hint = "use file:, s3:, gs:, abfss: or hdfs:, and encode special characters (%2F for a slash)"
        raise pa.ArrowInvalid(f"cannot read the address {hide_secrets(uri)!r}: {hint}") from None
    except OSError as error:
        # The second message is that of a later attempt in the same process.
        if not str(error).startswith(("Unable to load lib", "Prior attempt to load lib")):
            raise
        raise OSError(f"the native libraries with which Arrow opens HDFS are missing; {_HDFS_HINT}") from None
    return found


def is_uri(root: str) -> bool:
    """Whether a text is a URI and not a path. A path may also have a colon.

    >>> is_uri("s3://bucket/job"), is_uri("file:/shared/job"), is_uri("/data/12:30")
    (True, True, False)
    """
    return "://" in root or root.startswith("file:")


def is_local_path(root: str) -> bool:
    """Whether a path or URI names a place in the file system of this machine.

    >>> is_local_path("/data/job"), is_local_path("file:/data/job"), is_local_path("s3://bucket/job")
    (True, True, False)
    """
    return not is_uri(root) or root.startswith("file:")


def split_path(path: str) -> tuple[str, str]:
    """Split the path or URI of a folder into the folder around it, and its name.

    >>> split_path("s3://bucket/job/checkpoint/?region=x"), split_path("checkpoint")
    (('s3://bucket/job?region=x', 'checkpoint'), ('.', 'checkpoint'))
    """
    base, mark, options = path.partition("?") if "://" in path else (path, "", "")
    head, slash, name = base.rstrip("/").rpartition("/")
    return (head or slash or ".") + mark + options, name


def list_variables(root: str) -> tuple[str, ...]:
    """List the prefixes of the environment variables with which Arrow opens a folder.

    >>> list_variables("gs://bucket/job"), list_variables("/data/job")
    (('GOOGLE_', 'CLOUDSDK_', 'SSL_CERT_', 'http_proxy', 'https_proxy', 'no_proxy', 'HTTP'), ())
    """
    if is_local_path(root):
        return ()
    scheme = root.partition(":")[0]
    return (*_VARIABLES.get(scheme, ()), "SSL_CERT_", "http_proxy", "https_proxy", "no_proxy", "HTTP")
