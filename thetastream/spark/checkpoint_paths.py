"""Corrects the paths inside of a checkpoint that was moved or copied.

Spark writes the whole paths of the schemas of state into ``state/OPERATOR/_metadata/v2/EPOCH``, and reads the
schemas from there when a query starts again. All other paths of a checkpoint are relative to it.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from thetastream.core.folder import Folder, hide_secrets, is_uri, split_path
from thetastream.errors import StateError

METADATA, SCHEMAS = "_metadata/v2", "_stateSchema"


def update_paths(checkpoint: str | Path) -> int:
    """Correct the paths in a checkpoint that was moved or copied, so that its query can continue there.

    Without it, Spark looks for files at the old place and stops the query (``... does not exist``), or reads
    them there, if the checkpoint was copied. If no path is wrong, nothing is written.

    Parameters
    ----------
    checkpoint : str or Path
        The checkpoint at its new place, as a path or URI. No query may be running on it. The mailbox of its
        query must be moved or copied too.

    Returns
    -------
    int
        The number of files that were corrected.

    Raises
    ------
    StateError
        STATE_INCOMPLETE if a file that a path names is not in the checkpoint.
    OSError, pyarrow.ArrowException
        If the checkpoint cannot be read or written.

    Examples
    --------
    >>> import thetastream as th
    >>> th.update_paths("moved/checkpoint")  # doctest: +SKIP
    1
    """
    text = str(checkpoint)
    folder, root = Folder(*split_path(text)), _write_root(text)
    n_corrected = 0
    for operator in folder.list_files("state"):
        place = f"state/{operator}"
        for name in _list_names(folder, f"{place}/{METADATA}"):
            version, _, body = folder.read(name).decode().partition("\n")
            metadata = json.loads(body)
            is_changed = False
            for store in metadata["stateStoreInfo"]:
                found = [f"{place}/{SCHEMAS}/{_cut(path)}" for path in store["stateSchemaFilePaths"]]
                for path in found:
                    if not folder.exists(path):
                        what = f"{hide_secrets(text)} must have the file {path}, which {name} names"
                        raise StateError("STATE_INCOMPLETE", f"{what}; move or copy the whole checkpoint")
                paths = [f"{root}/{path}" for path in found]
                is_changed |= paths != store["stateSchemaFilePaths"]
                store["stateSchemaFilePaths"] = paths
            if is_changed:
                _remove_checksum(folder, name)
                folder.write(name, f"{version}\n{json.dumps(metadata, separators=(',', ':'))}".encode())
                n_corrected += 1
    return n_corrected


def _list_names(folder: Folder, inside: str) -> Iterator[str]:
    return (f"{inside}/{name}" for name in folder.list_files(inside) if name.isdigit())


def _cut(path: str) -> str:
    """Cut the path of a schema to the name of its store and of its file."""
    return "/".join(path.rsplit("/", 2)[-2:])


def _remove_checksum(folder: Folder, name: str) -> None:
    """Remove the file in which Hadoop keeps the checksum of a local file. Hadoop then does not check it."""
    head, _, tail = name.rpartition("/")
    checksum = f"{head}/.{tail}.crc"
    if folder.exists(checksum):
        folder.remove(checksum)


def _write_root(checkpoint: str) -> str:
    """Write the path of a checkpoint as Spark does.

    >>> _write_root("s3://key:secret@bucket/checkpoint/?region=x"), _write_root("file:///a/checkpoint")
    ('s3a://bucket/checkpoint', 'file:/a/checkpoint')
    """
    root = hide_secrets(checkpoint).rstrip("/")
    if not is_uri(root):
        return f"file:{os.path.abspath(root)}"
    return re.sub("^s3:", "s3a:", re.sub("^file:/+", "file:/", root))
