"""The streams of the measurement of hops in one epoch have as many results as plain loops find."""

import itertools

import pyarrow as pa

from bench.core.one_epoch import SECOND, WINDOW_S, Numbers


def test_the_expected_number_is_that_of_plain_loops() -> None:
    numbers = Numbers(3, 60, 1)
    streams = [
        [(row["ts"], row["k"]) for row in table.set_column(0, "ts", table["ts"].cast(pa.int64())).to_pylist()]
        for table in (pa.concat_tables(tables) for tables in numbers.files.values())
    ]

    def fits(one: tuple[int, int], other: tuple[int, int], distance: int | None) -> bool:
        is_inside = abs(one[0] - other[0]) <= WINDOW_S * SECOND
        return is_inside and (distance is None or abs(one[1] - other[1]) <= distance)

    found = sum(
        fits(b, c, 1) and fits(a, c, None)
        for a, b in itertools.product(*streams[:2])
        if fits(a, b, 1)
        for c in streams[2]
    )
    assert numbers.expected == found > 20
