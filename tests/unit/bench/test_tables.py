"""The tables that ``python -m bench tables`` draws have the results that DuckDB counts."""

import numpy as np
import pytest

from bench.core.tables import batches, streams
from bench.core.tables.cases import STEP, Case, ask_duckdb, checksum


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti", "as-of"])
@pytest.mark.parametrize("has_long_range", [True, False])
def test_results_are_counted(how: str, has_long_range: bool) -> None:
    case = Case("small", 50, how, has_long_range=has_long_range and how != "as-of")
    rows = case.draw_rows(400, seed=3)
    parts = [rows.slice(0, 150), rows.slice(150)]
    answers = ask_duckdb(case.sql, case.draw_table(), parts)
    inside = np.asarray(rows["x"]) % STEP < STEP * 9 // 10
    partners = inside.astype(int) + has_long_range
    expected = {
        "inner": partners.sum(),
        "left": np.maximum(partners, 1).sum(),
        "semi": (partners > 0).sum(),
        "anti": (partners == 0).sum(),
        "as-of": len(rows),
    }
    assert sum(one.results for one in answers) == expected[how]
    (whole,) = ask_duckdb(case.sql, case.draw_table(), [rows])
    assert whole.checksum == sum(one.checksum for one in answers)


def test_the_checksum_tells_pairs_apart() -> None:
    case = batches.Batches("small", "s.x < t.x AND s.y > t.y", 60, "", is_diagonal=True)
    left, right = case.draw(1), case.draw(2)
    sql = f"SELECT count(*), {checksum(has_partner=True)} FROM s JOIN t ON {{}}"
    found = [
        ask_duckdb(sql.format(on), right, [left])[0]
        for on in ("s.id = t.id", "s.id + 1 = t.id", "s.id + t.id = 59")
    ]
    assert len({one.checksum for one in found}) == 3
    assert [one.results for one in found] == [60, 59, 60]


def test_ratios_are_those_of_the_same_case() -> None:
    rows = [
        {"case": "inner", "way": "an index", "rows_per_s": 600.0, "duckdb_rows_per_s": 1200.0},
        {"case": "inner", "way": "Spark's loop", "rows_per_s": 20.0, "duckdb_rows_per_s": 1000.0},
        {"case": "large", "way": "an index", "rows_per_s": 300.0, "duckdb_rows_per_s": 100.0},
    ]
    streams.compare(rows)
    assert [row["of_duckdb"] for row in rows] == [0.5, 0.02, 3.0]
    assert [row.get("of_loop") for row in rows] == [30.0, None, None]
    assert [row.get("of_inner") for row in rows] == [1.0, None, 0.5]


def test_cases_have_names_of_their_own() -> None:
    names = [case.name for case in (*streams.CASES, *batches.CASES)]
    assert len(set(names)) == len(names)
