"""Pairs of similar vectors do not depend on the kernels of the BLAS library."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = """
import json, sys
import numpy as np, pyarrow as pa
from bench.core.similarity import draw_inputs, describe_lookup, make_block
from bench.core import internals as inside

left, right = draw_inputs(1500, 7)
right[:700] = left[:700]                      # values near 1, where products round in many ways
found = {}
for case in ("near", "top"):
    lookup = describe_lookup(case, True)
    block = make_block(right)
    table = inside.TableRuns([inside.build(lookup.plan, block)], block.schema)
    answers = lookup.answer(make_block(left), table)
    pairs = np.concatenate([[one.to_numpy() for one in columns[:2]] for columns in answers], axis=1)
    found[case] = sorted(map(tuple, pairs.T.tolist()))
bits = (left @ right.T).view(np.int32).astype(np.int64).sum()
print(json.dumps([found, int(bits)]))
"""


def run(core: str) -> tuple[dict[str, list[list[int]]], int]:
    environment = {**os.environ, "OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "1"}
    program = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=600)
    found, bits = json.loads(ran.stdout)
    return found, bits


@pytest.mark.slow
def test_the_pairs_are_the_same_with_other_kernels() -> None:
    name = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    if "openblas" not in name:
        pytest.skip(f"the BLAS library is {name}")
    (found, bits), (others, other_bits) = run("Haswell"), run("Nehalem")
    assert found == others
    assert len(found["near"]) >= 700
    assert len(found["top"]) >= 15_000
    assert bits != other_bits, "both kernels round alike, so this test shows nothing"
