"""The files of Spark's checkpoints: the logs of epochs, and the paths inside of a checkpoint.

metadata          the id of the query
offsets/<epoch>   "v1", a line of metadata, and then one line per source
commits/<epoch>   "v1" or "v2", and a line with the watermark of the next epoch
sources/SOURCE/<number>   "v1", and a line for each file that Spark's source of files has read
state/OPERATOR/_metadata/v2/EPOCH   the whole paths of the schemas of state
.<name>.crc       beside a local file, in which Hadoop keeps its checksums, each over 512 bytes
.<name>.UUID.tmp  the draft of a file, which a killed driver leaves behind

Spark reads the schemas from these paths when a query starts again, so ``update_paths`` corrects them in a
checkpoint that was moved or copied. All other paths of a checkpoint are relative to it.
"""

import json
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from thetastream.core.addresses import hide_secrets
from thetastream.core.arguments import read_path
from thetastream.core.errors import StateError
from thetastream.core.folder import Folder, is_local_path, is_uri, split_path

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
    place = read_path(checkpoint, "checkpoint")
    folder, root = Folder(*split_path(place)), _write_root(place)
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


def prepare_checkpoint(checkpoint: str | Path) -> None:
    """Refuse a checkpoint on this machine whose logs are damaged, before its query starts, and remove drafts.

    Spark reads files of these logs without comparing their checksums, so an altered list of the files that a
    source has read would change results.

    Raises
    ------
    StateError
        CHECKPOINT_DAMAGED, with the files.
    """
    if not is_local_path(str(checkpoint)):
        return
    folder = Folder(*split_path(str(checkpoint)))
    damages = find_damages(folder)
    if damages:
        more = f", and {len(damages) - 3} more" if len(damages) > 3 else ""
        what = f"the checkpoint {checkpoint} has files that are not as they were written"
        hint = "Restore the checkpoint, or begin with a new checkpoint and a new place for the results"
        raise StateError("CHECKPOINT_DAMAGED", f"{what}: {'; '.join(damages[:3])}{more}. {hint}")
    _remove_drafts(folder)


def _remove_drafts(folder: Folder) -> None:
    """Remove the drafts of the first offsets that a killed driver has left in a checkpoint.

    Spark writes an entry of a log under another name first, ``offsets/.0.UUID.tmp``. It starts no query whose
    first epoch has not begun if anything is in this folder (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY).
    """
    names = folder.list_files("offsets")
    if find_last_epoch(names) < 0:
        for name in names:
            if re.fullmatch(r"\.{1,2}0\.[0-9a-f-]{36}\.tmp(\.crc)?", name):
                folder.remove(f"offsets/{name}")


def find_damages(folder: Folder) -> list[str]:
    """Find what is damaged in the logs of a checkpoint: for each file, its name and what is wrong with it.

    Spark finds damages of state itself.
    """
    offsets = folder.list_files("offsets")
    checks = {"metadata": _check_query} if offsets or folder.exists("metadata") else {}
    for log in ("offsets", "commits"):
        checks |= {f"{log}/{number}": _check_epoch for number in _list_epochs(folder.list_files(log))}
    for source in sorted(folder.list_files("sources")):
        checks |= _check_source(folder, source, find_last_epoch(offsets))
    damages = ((name, _find_damage(folder, name, check)) for name, check in checks.items())
    found = [f"{name} {why}" for name, why in damages if why is not None]
    return found or _find_disorder(folder, sorted(int(name) for name in offsets if name.isdecimal()))


def _list_epochs(names: Collection[str]) -> list[int]:
    """List the epochs in a log. Spark cannot write the next one if only its checksum is there.

    >>> _list_epochs(["4", "5", ".1.crc", ".4.crc", ".5.crc", ".6.crc"])
    [4, 5, 6]
    """
    epochs = sorted(int(name) for name in names if name.isdecimal())
    checksums = [int(found[1]) for name in names if (found := re.fullmatch(r"\.(\d+)\.crc", name))]
    return [*epochs, *sorted(n for n in checksums if epochs and n > epochs[-1])]


def _find_disorder(folder: Folder, epochs: list[int]) -> list[str]:
    """Find epochs whose sources of files have read less than in the epoch before, or are not as many.

    Such offsets belong to another epoch, or have lines twice.
    """
    found = []
    offsets = ((epoch, folder.read(f"offsets/{epoch}").decode().splitlines()[2:]) for epoch in epochs)
    for (before, one), (after, other) in pairwise(offsets):
        read = [[_FILES.fullmatch(line) for line in lines] for lines in zip(one, other, strict=False)]
        goes_back = any(first and last and int(first[1]) > int(last[1]) for first, last in read)
        if goes_back or len(one) != len(other):
            found.append(f"offsets/{after} does not follow offsets/{before}")
    return found


_FILES = re.compile(r'\{"logOffset": ?(\d+)\}')
"""The offset of a source of files."""
_Check = Callable[[str, str], str | None]
"""Says what is wrong with a file of this name and this text; None if nothing is."""


def _check_source(folder: Folder, source: str, epoch: int) -> dict[str, _Check]:
    """List the files that the log of a source must have after an epoch, and how they are checked.

    In the log of a source of files, ``9.compact`` has all that the files up to 9 had, and after it there is
    one file for each number. What other sources have there is their own.
    """
    found = [
        name for name in folder.list_files(f"sources/{source}") if re.fullmatch(r"\d+(\.compact)?", name)
    ]
    if not any(b'"batchId":' in folder.read(f"sources/{source}/{name}") for name in found):
        return {f"sources/{source}/{name}": lambda *_: None for name in found}
    compact = max((int(name[:-8]) for name in found if name.endswith(".compact")), default=-1)
    last = max(find_last_epoch(found), _read_least_offset(folder, epoch))
    names = [f"{compact}.compact"] if compact >= 0 else []
    return {f"sources/{source}/{name}": _check_files for name in (*names, *range(compact + 1, last + 1))}


def _read_least_offset(folder: Folder, epoch: int) -> int:
    """Read the number up to which the logs of all sources of files have been read; -1 if it is not known."""
    try:
        lines = folder.read(f"offsets/{epoch}").decode().splitlines()[2:]
        offsets = [json.loads(line) for line in lines if line.startswith('{"logOffset":')]
        return min((int(offset["logOffset"]) for offset in offsets), default=-1)
    except (OSError, ValueError, KeyError, TypeError):
        return -1


def _find_damage(folder: Folder, name: str, check: _Check) -> str | None:
    """Say what is wrong with a file; None if nothing is."""
    if not folder.exists(name):
        return "is gone"
    data = folder.read(name)
    head, _, tail = name.rpartition("/")
    checksums = f"{head}/.{tail}.crc".lstrip("/")
    try:
        if wrong := check(tail, data.decode()):
            return wrong
    except (ValueError, KeyError, TypeError) as error:
        return f"cannot be read: {error}"
    if folder.exists(checksums) and not _fits(data, folder.read(checksums)):
        return "does not fit its checksum"
    return None


def _check_query(_: str, text: str) -> str | None:
    return None if json.loads(text)["id"] else "has no id"


def _check_epoch(_: str, text: str) -> str | None:
    version, *lines = text.splitlines() or [""]
    if not re.fullmatch(r"v\d+", version):
        return "does not begin with its version"
    json.loads(lines[0] if lines else "")
    return None


def _check_files(name: str, text: str) -> str | None:
    version, *lines = text.splitlines() or [""]
    if not re.fullmatch(r"v\d+", version):
        return "does not begin with its version"
    return None if all(_belongs(json.loads(line), name) for line in lines) else "is that of another number"


def _belongs(line: Any, name: str) -> bool:
    """Whether a line of the log of a source belongs into the file of this name."""
    number = line.get("batchId") if isinstance(line, dict) else None
    if not isinstance(number, int):
        return False
    return number <= int(name.split(".")[0]) if name.endswith(".compact") else number == int(name)


def _fits(data: bytes, checksums: bytes) -> bool:
    r"""Whether the content of a file fits the checksums that Hadoop keeps beside it.

    >>> _fits(b"v1", b"crc\0" + (512).to_bytes(4, "big") + zlib.crc32(b"v1").to_bytes(4, "big"))
    True
    """
    size = int.from_bytes(checksums[4:8], "big")
    if checksums[:4] != b"crc\0" or not size:
        return False
    sums = [zlib.crc32(data[start : start + size]) for start in range(0, len(data), size)]
    return checksums[8:] == b"".join(one.to_bytes(4, "big") for one in sums)


def find_last_epoch(names: Iterable[str]) -> int:
    """Find the last epoch among the names of the files of a log; -1 if there is none.

    >>> find_last_epoch(["0", "10", "9", ".9.crc"])
    10
    """
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def find_epochs(folder: Folder) -> tuple[int, int]:
    """Find the last epoch that was begun, and the last one that was committed; -1 if there is none."""
    begun, committed = (find_last_epoch(folder.list_files(log)) for log in ("offsets", "commits"))
    return begun, committed


def read_offsets(folder: Folder, epoch: int, where: str) -> list[str]:
    """Read the lines of the offsets of an epoch: the version, the metadata, and one for each source.

    Raises
    ------
    StateError
        CHECKPOINT_VERSION.
    """
    lines = folder.read(f"offsets/{epoch}").decode().splitlines()
    if lines[0] != "v1":
        what = f"the offsets of {where} must have Spark's version v1, and they have {lines[0]}"
        raise StateError("CHECKPOINT_VERSION", what)
    return lines


def read_epoch(folder: Folder, log: str, epoch: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read what a log says about an epoch: the metadata, and the other lines that are JSON objects."""
    lines = folder.read(f"{log}/{epoch}").decode().splitlines()
    found = [json.loads(line) for line in lines[1:] if line.startswith("{")]
    return (found[0], found[1:]) if found else ({}, [])
