"""The tables of ranges that ``python -m bench tables`` draws have the results that DuckDB counts."""

import numpy as np
import pytest

from bench.core.tables import CASES, STEP, Case, count_results


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("has_long_range", [True, False])
def test_results_are_counted(how: str, has_long_range: bool) -> None:
    case = Case("small", 50, how, has_long_range)
    rows = case.draw_rows(400, seed=3)
    found, _ = count_results(case, case.draw_table(), rows)
    inside = np.asarray(rows["x"]) % STEP < STEP * 9 // 10
    partners = inside.astype(int) + has_long_range
    expected = {
        "inner": partners.sum(),
        "left": np.maximum(partners, 1).sum(),
        "semi": (partners > 0).sum(),
        "anti": (partners == 0).sum(),
    }
    assert found == expected[how]


def test_cases_have_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
