"""A folder that driver and workers share: a path, or a URI that Arrow opens (``hdfs:``, ``s3:``, ``file:``).

A file appears under its name with all its content or not at all.
"""

import os
import uuid

import pyarrow as pa
from pyarrow import fs


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
        If Arrow cannot open the URI.
    """

    def __init__(self, root: str, name: str) -> None:
        if "://" in root or root.startswith("file:"):
            self._fs, path = fs.FileSystem.from_uri(root)
        else:
            self._fs, path = fs.LocalFileSystem(), root
        self._folder = f"{path.rstrip('/')}/{name}"

    def make(self, is_private: bool = False) -> None:
        """Make the folder. If it is private, no other user of this machine may read it."""
        if is_private and isinstance(self._fs, fs.LocalFileSystem):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
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

    def write(self, name: str, *pieces: bytes | pa.Buffer) -> None:
        """Write a file, in place of an earlier one of the same name."""
        path = f"{self._folder}/{name}"
        head, _, tail = path.rpartition("/")
        # Spark does not read files whose names begin with a dot.
        temporary = f"{head}/.{tail}.{uuid.uuid4().hex[:8]}"
        with self._fs.open_output_stream(temporary) as file:
            for piece in pieces:
                file.write(piece)
        try:
            self._fs.move(temporary, path)
        except OSError:
            if not self.exists(name):
                raise
            # HDFS refuses to rename a file to a name that exists.
            self._fs.delete_file(path)
            self._fs.move(temporary, path)
