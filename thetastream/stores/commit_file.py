"""Writes a commit of a log in a folder. If several writers write one version, only one of them succeeds.

    local file system    a hard link, which is refused if the name exists
    HDFS                 a rename, which is refused if the name exists
    S3                   a conditional write, which Arrow does not have (``thetastream.stores.s3_commit``)

Arrow has no such step for other file systems, so a store on one of them is refused.
"""

from thetastream.core.folder import Folder
from thetastream.stores.base import make_not_atomic


def write_once(root: str, folder: Folder, name: str, data: bytes) -> bool:
    """Write a file unless there is one of this name, and return whether it was written.

    Parameters
    ----------
    root : str
        The path or URI with which ``folder`` was opened.

    Raises
    ------
    QueryError
        NO_ATOMIC_COMMIT if the file system cannot refuse to replace a file that exists.
    StoreError
        STORE_UNREACHABLE.
    """
    kind = folder.filesystem.type_name
    if kind in ("local", "hdfs"):
        return folder.write_new(name, data)
    if kind == "s3":
        from thetastream.stores.s3_commit import connect  # loads boto3

        return connect(root, folder.filesystem.region).write_new(folder.locate(name), data)
    raise make_not_atomic(root, f"Arrow has no write for {kind!r} that fails if the name exists")
