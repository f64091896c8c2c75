"""Faults of files: what becomes of cached segments and of messages when a file is torn, lost or swapped.

A case is made by its seed: segments of this query and of another one in a cache, messages of several epochs
and units in two mailboxes, and one fault. ``run_case`` reads everything again and says what happened:
everything was read as it was written, or a read was refused by name, and is exact when the file is put back.
"""

import contextlib
import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from thetastream.core.condition import Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.errors import StateError
from thetastream.core.identity import Part
from thetastream.core.sides import Side
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import Run, build
from thetastream.engine.store.segment import SegmentMeta, describe
from thetastream.index import IndexSpec, Sorted
from thetastream.runtime.mailbox.files import Mailbox, Row, rows
from thetastream.runtime.state.durable_store import DurableStore

EXACT = "exact"
QUERY = {"the model": Part("Ring(nodes=2)", "Ring(nodes=2)")}
EPOCHS, UNITS = 3, 2
_KEY, _TIME = Key("x", Domain.INT), Key("t", Domain.INT)
_CONDITION = Condition(
    sides=(SideSpec("a", ("x", "t"), (), (_KEY,), _TIME), SideSpec("b", ("x", "t"), (), (_KEY,), _TIME)),
    dimensions=(Dimension(Side.LEFT, 0, Bound(0, -1), Bound(0, 1)),),
)
_INDEX = IndexSpec(Sorted(), dimensions=(0,))
_PLANS: dict[int, IndexPlan] = {side: IndexPlan(_CONDITION, side, _INDEX) for side in Side}


class Parts(dict[tuple[str, int], tuple[bytes]]):
    """The methods of Spark's MapState that a store uses."""

    def getValue(self, key: tuple[str, int]) -> tuple[bytes] | None:
        return self.get(key)

    def updateValue(self, key: tuple[str, int], value: tuple[bytes]) -> None:
        self[key] = value

    def removeKey(self, key: tuple[str, int]) -> None:
        self.pop(key, None)


@dataclass
class Files:
    """The files of a case, and what must be read from them."""

    root: Path
    parts: Parts
    segments: list[tuple[SegmentMeta, Run]]
    box: Mailbox
    messages: dict[tuple[int, int], list[dict[str, Any]]]

    def read_segments(self) -> bool:
        """Whether every segment is read as it was written, and once more from the repaired cache."""
        for _ in range(2):
            store = DurableStore(self.parts, _PLANS, self.root / "cache")
            for meta, run in self.segments:
                found = store.get(meta)
                if not (found.payload.equals(run.payload) and found.rows.tolist() == run.rows.tolist()):
                    return False
        return True

    def read_messages(self) -> bool:
        """Whether all messages are read as they were written; raise if a read is refused."""
        self.box.check(QUERY)
        return all(
            [row for batch in self.box.fetch(epoch, unit) for row in batch.to_pylist()] == sent
            for (epoch, unit), sent in self.messages.items()
        )


def make_files(chance: random.Random, root: Path) -> Files:
    """Write segments and messages of this query, and of another one beside them."""
    segments, parts = [], Parts()
    for query in ("mine", "theirs"):
        for _ in range(3):
            n = chance.choice([1, 20, 3000])
            values = {name: [chance.randrange(1000) for _ in range(n)] for name in ("x", "t")}
            run = build(_PLANS[Side.LEFT], pa.RecordBatch.from_pydict(values))
            meta = describe(Side.LEFT, 0, run)
            store = DurableStore(parts if query == "mine" else Parts(), _PLANS, root / "cache")
            store.put(meta, run)
            written = replace(meta, durable_bytes=store.write(meta))
            if query == "mine":
                segments.append((written, run))
    messages = {}
    for name in ("mine", "theirs"):
        box = Mailbox(str(root / "mail"), name)
        box.create(QUERY)
        for epoch in range(EPOCHS):
            for unit in range(UNITS):
                text = f"{name} {epoch} {unit} " + "x" * chance.choice([0, 5000])
                batch = rows([Row(0, 0, text, b"", [(unit, 1)])])
                box.post(epoch, unit, [batch])
                if name == "mine":
                    messages[epoch, unit] = batch.to_pylist()
    return Files(root, parts, segments, Mailbox(str(root / "mail"), "mine"), messages)


# Faults. Each changes one file, or the folder around it.


def tear(chance: random.Random, file: Path, others: list[Path]) -> None:
    """Cut the end off, as a crash of the host does."""
    data = file.read_bytes()
    rewrite(file, data[: chance.randrange(len(data))])


def lengthen(chance: random.Random, file: Path, others: list[Path]) -> None:
    """Append bytes."""
    rewrite(file, file.read_bytes() + chance.randbytes(1 + chance.randrange(100)))


def lose(chance: random.Random, file: Path, others: list[Path]) -> None:
    """Remove the file."""
    file.unlink()


def lose_folder(chance: random.Random, file: Path, others: list[Path]) -> None:
    """Remove the folder of the file."""
    shutil.rmtree(file.parent)


def swap(chance: random.Random, file: Path, others: list[Path]) -> None:
    """Exchange the file with another one, of the same query or of another."""
    other = chance.choice(others)
    mine, theirs = file.read_bytes(), other.read_bytes()
    rewrite(file, theirs)
    rewrite(other, mine)


def copy(chance: random.Random, file: Path, others: list[Path]) -> None:
    """Put a copy of another file in its place."""
    rewrite(file, chance.choice(others).read_bytes())


def link(chance: random.Random, file: Path, others: list[Path]) -> None:
    """Put a link to another file in its place."""
    file.unlink()
    file.symlink_to(chance.choice(others))


def replace_by_folder(chance: random.Random, file: Path, others: list[Path]) -> None:
    """Put a folder in its place."""
    file.unlink()
    file.mkdir()


def rewrite(file: Path, data: bytes) -> None:
    """Write a new file, because the old one may be mapped."""
    file.unlink()
    file.write_bytes(data)


Fault = Callable[[random.Random, Path, list[Path]], None]
FAULTS: dict[str, Fault] = {
    "torn": tear,
    "lengthened": lengthen,
    "lost": lose,
    "its folder lost": lose_folder,
    "swapped": swap,
    "another in its place": copy,
    "a link in its place": link,
    "a folder in its place": replace_by_folder,
}
FULL = "disk full"
PLACES = ("cache", "mailbox", "label")


def run_case(seed: int, root: Path) -> tuple[str, str, str]:
    """Run one case; return (place, fault, outcome)."""
    chance = random.Random(seed)
    files = make_files(chance, root)
    place = chance.choice(PLACES)
    fault = chance.choice([*FAULTS, FULL] if place == "cache" else [*FAULTS])
    saved = root.with_name(f"{root.name}.saved")
    shutil.copytree(root, saved)
    if fault == FULL:
        return place, fault, _run_out_of_disk(chance, files)
    file, others = _choose_file(chance, files, place)
    FAULTS[fault](chance, file, others)
    if place == "cache":
        return place, fault, EXACT if files.read_segments() else "wrong"
    try:
        outcome = EXACT if files.read_messages() else "wrong"
    except StateError as error:
        # Nothing is lost: with the files put back, everything is read.
        shutil.rmtree(root)
        saved.rename(root)
        outcome = error.condition if files.read_messages() else "lost"
    return place, fault, outcome


def _choose_file(chance: random.Random, files: Files, place: str) -> tuple[Path, list[Path]]:
    """Choose the file of a fault, and list all others of its kind."""
    if place == "cache":
        everything = sorted(path for path in (files.root / "cache").iterdir() if path.is_file())
        file = files.root / "cache" / chance.choice(files.segments)[0].id
    elif place == "label":
        everything = sorted((files.root / "mail").glob("*/mailbox.json"))
        file = files.root / "mail" / "mine" / "mailbox.json"
    else:
        everything = sorted(path for path in (files.root / "mail").glob("*/*/*"))
        epoch, unit = chance.choice(sorted(files.messages))
        file = files.root / "mail" / "mine" / str(epoch) / str(unit)
    return file, [path for path in everything if path != file]


def _run_out_of_disk(chance: random.Random, files: Files) -> str:
    """Write segments while no file can become longer than a few bytes, and then read all."""
    shutil.rmtree(files.root / "cache")
    store = DurableStore(files.parts, _PLANS, files.root / "cache")
    with limit_files(chance.randrange(1, 3000)):
        for meta, _ in files.segments:
            store.get(meta)
    return EXACT if files.read_segments() else "wrong"


@contextlib.contextmanager
def limit_files(nbytes: int) -> Iterator[None]:
    """Let every write behind this many bytes of a file fail with an OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
