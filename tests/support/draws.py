"""How many random cases a test draws.

A test of hypothesis draws new cases in each run, so that runs of ``make test`` add up. ``make sweep`` runs
these tests again with many more cases: ``THETASTREAM_DRAWS`` multiplies their number.
"""

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("THETASTREAM_DRAWS", "1"))


def draw_by_default() -> None:
    """Let tests without ``draw_cases`` draw the number of hypothesis, 100, however long a case takes.

    A case takes longer than the 200 ms of hypothesis if the machine is busy or kernels are compiled.
    """
    settings.register_profile("thetastream", max_examples=100 * TIMES, deadline=None)
    settings.load_profile("thetastream")


def draw_cases(number: int) -> settings:
    """Let a test draw this number of cases in ``make test``, however long a case takes."""
    return settings(max_examples=number * TIMES, deadline=None, suppress_health_check=list(HealthCheck))
