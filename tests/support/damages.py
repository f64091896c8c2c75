"""``python -m tests.support.damages FOLDER --cases 500``: damages of every kind of file, as a table.

Each case damages one file, and reads what it belongs to. It is exact, or it is refused by a name of ours.
The file ``damages.jsonl`` in the folder has a line for each case, so a run that was interrupted goes on. Each
case of a checkpoint starts a query on Spark, which takes seconds. ``--without-spark`` leaves them out.
"""

import argparse
import contextlib
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from tests.support import checkpoint_damage, control_faults, file_faults, store_damage
from tests.support.stores import EMBEDDED
from thetastream.runtime.state import segment_cache

EXACT, WRONG = "exact", "WRONG"


class Case(NamedTuple):
    """One damage."""

    suite: str
    number: int
    kind: str
    """The kind of the damaged file."""
    outcomes: list[str]
    """What became of each way to read it: it was exact, or the name of a refusal."""


def run_files(numbers: range, folder: Path) -> Iterator[Case]:
    """Damage cached segments, messages, and labels of mailboxes."""
    with pytest.MonkeyPatch.context() as patch:
        # Read files, not the runs that this process keeps; and map more than the largest ones.
        patch.setattr(segment_cache, "KEPT_BYTES", 0)
        patch.setattr(segment_cache, "MAPPED_BYTES", 1 << 12)
        for number in numbers:
            place, _, outcome = file_faults.run_case(number, folder / f"{number}")
            names = {"cache": "cached segment", "mailbox": "message", "label": "label of a mailbox"}
            yield Case("files", number, names[place], [outcome])
            for left in folder.glob(f"{number}*"):
                shutil.rmtree(left)


def run_control(numbers: range, folder: Path) -> Iterator[Case]:
    """Damage plans, marks, labels and links of control folders."""
    for number in numbers:
        with pytest.MonkeyPatch.context() as patch:
            (folder / f"{number}").mkdir()
            kind, _, outcome = control_faults.run_case(number, folder / f"{number}", patch)
            yield Case("control", number, f"control: {kind}", [outcome])
        shutil.rmtree(folder / f"{number}")


def run_stores(name: str, numbers: range, folder: Path) -> Iterator[Case]:
    """Damage all kinds of files of a store."""
    for case in store_damage.damage_often(EMBEDDED[name], folder, numbers, seed=11):
        yield Case(name, case.number, f"{name} store: {case.name}", [*case.outcomes.values()])


def run_checkpoints(numbers: range, folder: Path) -> Iterator[Case]:
    """Damage files of checkpoints, and continue their queries on Spark."""
    import thetastream as th

    spark = th.local_session(2, "damages")
    spark.sparkContext.setLogLevel("OFF")
    for number, kind, _, outcome in checkpoint_damage.run_cases(spark, folder, numbers):
        name = re.search(r"\[([A-Z][A-Z_]+)\]", outcome)
        found = EXACT if outcome == EXACT else name[1] if name else WRONG
        yield Case("checkpoints", number, f"checkpoint: {kind}", [found])
    spark.stop()


SUITES: dict[str, tuple[Callable[[range, Path], Iterator[Case]], int]] = {
    "files": (run_files, 3),
    "control": (run_control, 4),
    "parquet": (partial(run_stores, "parquet"), 6),
    "delta": (partial(run_stores, "delta"), 7),
    "checkpoints": (run_checkpoints, len(checkpoint_damage.KINDS)),
}
"""The suites, and how many kinds of files each of them has."""


def run(folder: Path, cases: int, suites: Iterable[str]) -> list[Case]:
    """Run cases until each kind has about as many as asked for, or go on with them."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "damages.jsonl"
    for suite in suites:
        run_suite, n_kinds = SUITES[suite]
        done = sum(case.suite == suite for case in read_cases(log))
        with TemporaryDirectory(prefix="damages-") as place, log.open("a") as file:
            for case in run_suite(range(done, cases * n_kinds), Path(place)):
                file.write(f"\n{json.dumps(case._asdict())}")
                file.flush()
    return read_cases(log)


def read_cases(log: Path) -> list[Case]:
    """Read the cases that have ended."""
    found = []
    for line in log.read_text().splitlines() if log.exists() else ():
        # A process that is killed while it writes a line leaves a part of it.
        with contextlib.suppress(ValueError):
            found.append(Case(**json.loads(line)))
    return found


def write_table(cases: Iterable[Case]) -> str:
    """Write how many cases of each kind were exact in all ways, and what refused the others."""
    n_cases, n_exact = Counter[str](), Counter[str]()
    refused: dict[str, Counter[str]] = {}
    for case in cases:
        n_cases[case.kind] += 1
        n_exact[case.kind] += set(case.outcomes) == {EXACT}
        refused.setdefault(case.kind, Counter()).update(set(case.outcomes) - {EXACT})
    lines = ["| damaged file | cases | exact | refused by |", "|---|---|---|---|"]
    for kind in sorted(n_cases):
        names = ", ".join(f"`{name}` {n}" for name, n in sorted(refused[kind].items()))
        lines.append(f"| {kind} | {n_cases[kind]} | {n_exact[kind]} | {names} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run or continue, and print the table; return 1 if a case was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", type=int, default=500, help="cases of each kind of file (default 500)")
    parser.add_argument("--without-spark", action="store_true", help="leave checkpoints out")
    asked = parser.parse_args(arguments)
    suites = [name for name in SUITES if name != "checkpoints" or not asked.without_spark]
    cases = run(asked.folder, asked.cases, suites)
    print(write_table(cases))
    wrong = [case for case in cases if not set(case.outcomes) <= {EXACT} | ALLOWED]
    print(f"{len(cases)} cases, wrong: {wrong}")
    return int(bool(wrong))


ALLOWED = {
    *store_damage.REFUSED,
    *("MAILBOX_DAMAGED", "MAILBOX_MISSING", "MAILBOX_FOREIGN", "MAILBOX_UNUSABLE"),
    *("CONTROL_MISSING", "CONTROL_TWICE", "CONTROL_UNUSABLE"),
    *("CHECKPOINT_DAMAGED", "STORE_IN_USE", "STORE_AHEAD", "STATE_OF_ANOTHER_QUERY"),
}
"""The names by which a case may be refused."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
