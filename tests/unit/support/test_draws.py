"""Tests of random cases fail for no case that is only slow, and draw more cases in ``make sweep``."""

from hypothesis import settings

from tests.support.draws import TIMES, draw_cases


def test_no_case_has_a_deadline_and_all_are_multiplied() -> None:
    """Before, a first case that compiled kernels on a busy machine was DeadlineExceeded."""
    assert settings().deadline is None
    assert settings().max_examples == 100 * TIMES
    assert draw_cases(7).max_examples == 7 * TIMES
