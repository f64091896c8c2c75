"""Of versions with one order, their values decide, wherever they lie."""

import random

import numpy as np
import pyarrow as pa
import pytest

from thetastream.core.columns import VERSION_GONE, VERSION_ORDER
from thetastream.core.versions import select_last


@pytest.mark.parametrize("has_order", [False, True])
def test_the_same_version_is_chosen_in_each_arrangement(has_order: bool) -> None:
    chance = random.Random(5)
    for _ in range(40):
        rows = [
            (
                chance.randrange(3),
                chance.choice([None, 1, 2]),
                chance.choice(["a", "b", None]),
                chance.random() < 0.3,
            )
            for _ in range(chance.randrange(12))
        ]
        found = set()
        for _ in range(5):
            chance.shuffle(rows)
            owners, order, names, gone = zip(*rows, strict=True) if rows else ((),) * 4
            columns = {"c1": pa.array(names, pa.string()), VERSION_GONE: pa.array(gone, pa.bool_())}
            if has_order:
                columns[VERSION_ORDER] = pa.array(order, pa.int64())
            versions = pa.RecordBatch.from_pydict(columns)
            last = select_last(np.array(owners, dtype=np.int64), versions, ["c1"])
            found.add(tuple(sorted((owners[n], names[n], gone[n]) for n in last)))
            assert len(last) == len({*owners})
        assert len(found) == 1
