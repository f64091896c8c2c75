"""The files of Spark's checkpoints: the logs of epochs, and the paths inside of a checkpoint.

offsets/<epoch>   "v1", a line of metadata, and then one line per source
commits/<epoch>   "v1" or "v2", and a line with the watermark of the next epoch
state/OPERATOR/_metadata/v2/EPOCH   the whole paths of the schemas of state

Spark reads the schemas from these paths when a query starts again, so ``update_paths`` corrects them in a
checkpoint that was moved or copied. All other paths of a checkpoint are relative to it.
"""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from thetastream.core.errors import StateError
from thetastream.core.folder import Folder, hide_secrets, is_uri, split_path

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
        The number of files that were corrected; 0 also if the folder does not exist or has no state.

    Raises
    ------
    StateError
        STATE_INCOMPLETE if a file with paths is damaged, or if a path names a file that is not in the
        checkpoint.
    OSError, pyarrow.ArrowException
        If the checkpoint cannot be read or written.

    Examples
    --------
    >>> import thetastream as th
    >>> th.checkpoints.update_paths("moved/checkpoint")  # doctest: +SKIP
    1
    """
    folder, root = Folder(*split_path(str(checkpoint))), _write_root(str(checkpoint))
    n_corrected = 0
    for operator in folder.list_files("state"):
        for epoch in folder.list_files(f"state/{operator}/{METADATA}"):
            # Spark's checksums lie beside the files of epochs.
            if epoch.isdigit():
                n_corrected += _correct(folder, root, f"state/{operator}", f"{METADATA}/{epoch}")
    return n_corrected


def _correct(folder: Folder, root: str, operator: str, file: str) -> bool:
    """Correct the paths in one file of an operator, and return whether one of them was wrong."""
    name = f"{operator}/{file}"
    version, _, body = folder.read(name).decode(errors="replace").partition("\n")
    try:
        metadata = json.loads(body)
        before = [store["stateSchemaFilePaths"] for store in metadata["stateStoreInfo"]]
    except (ValueError, KeyError, TypeError) as error:
        what = f"{root} must have paths of schemas in {name}, and the file is damaged: {error}"
        raise StateError("STATE_INCOMPLETE", f"{what}; restore the checkpoint") from None
    after = []
    for paths in before:
        # The path of a schema ends with the name of its store and the name of its file.
        schemas = [f"{operator}/{SCHEMAS}/{'/'.join(path.rsplit('/', 2)[-2:])}" for path in paths]
        for schema in schemas:
            if not folder.exists(schema):
                what = f"{root} must have the file {schema}, which {name} names"
                raise StateError("STATE_INCOMPLETE", f"{what}; move or copy the whole checkpoint")
        after.append([f"{root}/{schema}" for schema in schemas])
    if after == before:
        return False
    for store, paths in zip(metadata["stateStoreInfo"], after, strict=True):
        store["stateSchemaFilePaths"] = paths
    remove_checksum(folder, name)
    folder.write(name, f"{version}\n{json.dumps(metadata, separators=(',', ':'))}".encode())
    return True


def remove_checksum(folder: Folder, name: str) -> None:
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


def find_last_epoch(names: Iterable[str]) -> int:
    """Find the last epoch among the names of the files of a log; -1 if there is none.

    >>> find_last_epoch(["0", "10", "9", ".9.crc"])
    10
    """
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def read_epoch(folder: Folder, log: str, epoch: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read what a log says about an epoch: the metadata, and the other lines that are JSON objects."""
    lines = folder.read(f"{log}/{epoch}").decode().splitlines()
    found = [json.loads(line) for line in lines[1:] if line.startswith("{")]
    return (found[0], found[1:]) if found else ({}, [])
