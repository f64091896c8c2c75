"""Damages to the files of a store, as disks, copies and hands make them, and what a store answers then."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import thetastream as th
from tests.support.stores import HELD, read_ids, stage
from thetastream.core.errors import QueryError, StoreError
from thetastream.results import history, version_log
from thetastream.results.recent import KEY_VALUES, RECENT
from thetastream.results.snapshots import Snapshots
from thetastream.stores import ParquetStore, parquet_files

EXACT = "exact"
REFUSED = {"STORE_DAMAGED", "STORE_FORMAT", "NO_STORE", "STORE_BEHIND", "STORE_QUERY"}
"""The errors by which a damage may be refused."""

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


@dataclass(frozen=True)
class DamagedStore:
    """One damage, and what became of each way to ask the store: it was exact, or the name of an error."""

    number: int
    name: str
    """The kind of the damaged file."""
    how: str
    outcomes: dict[str, str]


def damage_often(kind: type[ParquetStore], folder: Path, numbers: range, seed: int) -> Iterator[DamagedStore]:
    """Damage a file of a store, ask it in every way, and put the store back; once for each number."""
    store, intact = kind(str(folder / "store")), folder / "intact"
    store.describe(HELD)
    for epoch in range(12):
        store.commit("q", epoch, stage(store, epoch, *range(epoch, epoch + 3)), Snapshots(size=3))
    store.compact()
    for epoch in range(12, 24):
        store.commit("q", epoch, stage(store, epoch, *range(epoch, epoch + 3)), Snapshots(size=3))
    store.sweep(grace_s=0)
    shutil.copytree(store.path, intact)
    expected = ask_all(store)
    assert not any(isinstance(one, str) for one in expected.values())
    for number in numbers:
        random = Random(1_000_003 * seed + number)
        shutil.rmtree(store.path)
        shutil.copytree(intact, store.path)
        kinds = [(name, files) for name, files in list_files(Path(store.path)) if files]
        name, files = kinds[number % len(kinds)]
        how = damage(files, random.choice(DAMAGES), random)
        found = ask_all(store)
        outcomes = {
            way: EXACT if answer == expected[way] else answer if isinstance(answer, str) else "WRONG"
            for way, answer in found.items()
        }
        yield DamagedStore(number, name, how, outcomes)


def ask_all(store: ParquetStore) -> dict[str, Any]:
    """Ask a store in all ways, and return answers, or the names of errors."""

    def ask(call: Callable[[], Any]) -> Any:
        forget_all()
        try:
            return call()
        except (StoreError, QueryError) as error:
            return error.condition

    def follow() -> Any:
        return [
            (one.snapshot.number, sorted(one.results["id"].to_pylist()))
            for one in th.subscribe(store, 0, patience="0s")
        ]

    return {
        "read": ask(lambda: read_ids(store)),
        "key": ask(lambda: read_ids(store, key={"id": (3, 9)})),
        "value": ask(lambda: read_ids(store, key={"a.symbol": "s1"})),
        "old": ask(lambda: read_ids(store, snapshot=3)),
        "snapshots": ask(lambda: [(one.number, one.rows) for one in store.snapshots()]),
        "subscribe": ask(follow),
        "query": ask(lambda: th.query(store, "SELECT count(*), sum(id) FROM results").to_pylist()),
        "next": ask(lambda: store.commit("q", 24, stage(store, 24, 24), Snapshots(size=3))),
    }
