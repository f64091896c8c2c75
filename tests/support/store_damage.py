"""Damages to the files of a store, as disks, copies and hands make them."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from thetastream.results import history, version_log
from thetastream.results.recent import KEY_VALUES, RECENT
from thetastream.stores import parquet_files

DAMAGES = ("flip", "digit", "cut", "zeros", "empty", "remove", "copy", "swap", "append")


def forget_all() -> None:
    """Let this process know as little of a store as a new process."""
    history._KNOWN.clear()
    version_log._NEWEST.clear()
    parquet_files._FOOTERS.clear()
    for cache in (RECENT, KEY_VALUES):
        cache.__init__(cache._capacity)  # type: ignore[misc]


def list_files(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """List the kinds of files of a store: the name of the kind, and its files."""
    log = folder / "_log"
    yield "description", [log / f"{0:020}.json"]
    yield "entry", sorted(log.glob("0*.json"))[1:]
    yield "note", [log / version_log.NOTE_FILE]
    yield "state", sorted(log.glob("state-*.json"))
    yield "part", sorted(folder.glob("part-*.parquet"))
    yield "merged", sorted(folder.glob("merged-*.parquet"))
    yield "delta", sorted((folder / "_delta_log").glob("*.json"))


def damage(files: list[Path], kind: str, random: Random) -> str:
    """Damage one of these files, and say how. A damage may leave a file as it was."""
    file, other = random.choice(files), random.choice(files)
    data = bytearray(file.read_bytes())
    place = random.randrange(len(data))
    if kind == "flip":
        data[place] ^= 1 << random.randrange(8)
    elif kind == "digit":
        digits = [n for n, one in enumerate(data) if 48 <= one < 58]
        place = random.choice(digits or [place])
        data[place] = random.choice(b"0123456789")
    elif kind == "cut":
        del data[place:]
    elif kind == "zeros":
        data[place : place + 512] = bytes(len(data[place : place + 512]))
    elif kind == "empty":
        data.clear()
    elif kind == "append":
        data += data[place:]
    if kind == "remove":
        file.unlink()
    elif kind == "copy":
        file.write_bytes(other.read_bytes())
    elif kind == "swap":
        file.write_bytes(other.read_bytes())
        other.write_bytes(data)
    else:
        file.write_bytes(data)
    return f"{kind} {file.name} at {place} (beside {other.name})"
