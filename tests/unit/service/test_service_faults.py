"""A service whose processes are killed, and whose clients misbehave, gives no wrong answer."""

from pathlib import Path

import pytest

from tests.support.service_faults import run_case


@pytest.mark.slow
def test_faults_change_no_answer_and_no_event(tmp_path: Path) -> None:
    points, wrong = run_case(1, tmp_path, n_points=6)
    assert wrong == []
    assert len(points) == 6
