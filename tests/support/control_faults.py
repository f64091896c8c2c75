"""Faults of control files: what becomes of a controlled join when a plan, a mark or the folder is damaged.

A case is made by its seed: a join, changes of its units, one fault of one file between two epochs. The join
goes on. Each epoch is exact, or it is refused by name; then the files are put back, the query starts again
and repeats the epoch. In the end all results are compared with the nested loop.
"""

import contextlib
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.support import file_faults
from tests.support.control_runs import Run
from thetastream.core.errors import ThetastreamError
from thetastream.models import Biclique, Split
from thetastream.runtime.control.request import Request

EXACT, EPOCHS = "exact", 12


def run_case(seed: int, folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, str, str]:
    """Run one case; return (kind of file, fault, outcome)."""
    chance = random.Random(seed)
    run = Run(folder, patch, Biclique((1, 1)), seed)
    struck, changes = chance.randrange(3, 8), {1: Request(model=Split(2)), 4: Request(sizes={"cores": 3})}
    changes[chance.choice([2, 5, 7])] = Request(model=Biclique((2, 1)))
    place, fault, outcome = "", "", EXACT
    for number in range(EPOCHS):
        if number in changes:
            run.spark.control.put_request(changes[number].write())
        saved = folder / "saved"
        if number == struck:
            shutil.copytree(folder / "box", saved)
            place, fault = damage(chance, folder / "box")
            if chance.random() < 0.5:
                run.spark.start()
        refused = repeat(run, folder)
        outcome = refused or outcome
    try:
        run.check()
    except AssertionError:
        return place, fault, "wrong"
    return place, fault, outcome


def damage(chance: random.Random, box: Path) -> tuple[str, str]:
    """Damage one control file; return its kind and the fault."""
    files = sorted(path for path in box.glob("control-*/**/*") if path.is_file())
    files = [path for path in files if path.parent.name != "requests"]
    file = chance.choice(files)
    fault = chance.choice([*file_faults.FAULTS])
    with contextlib.suppress(ValueError):  # An empty file cannot be torn.
        file_faults.FAULTS[fault](chance, file, [path for path in files if path != file])
    kind = file.parent.name if file.parent.parent != box else file.name
    return ("link of the query" if file.parent.name == "control-queries" else kind), fault


def repeat(run: Run, folder: Path) -> str:
    """Run an epoch; if it is refused, put the files back and run it again. Return the name of the refusal."""
    batches, refused = run.draw(8), ""
    logged = len(run.spark.offsets)
    for attempt in range(2):
        try:
            if len(run.spark.offsets) == logged:
                run.spark.log_offset()
            results = run.spark.run(batches, run.watermark)
            break
        except ThetastreamError as error:
            if attempt:
                raise
            refused = error.condition
            shutil.rmtree(folder / "box")
            (folder / "saved").rename(folder / "box")
            run.spark.start()
    run.end_epoch(results)
    return refused


def count_cases(seeds: range, folder: Path, patch: pytest.MonkeyPatch) -> Counter[tuple[str, str, str]]:
    """Run cases and count their outcomes."""
    found: Counter[tuple[str, str, str]] = Counter()
    for seed in seeds:
        (folder / str(seed)).mkdir()
        found[run_case(seed, folder / str(seed), patch)] += 1
        shutil.rmtree(folder / str(seed))
    return found
