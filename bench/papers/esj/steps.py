"""Counts the bisection steps of probes.

``thetastream.kernels.walk.lower_bound`` takes bit_length(n) steps in a bucket of n tuples: it halves n,
rounded down, until nothing is left. Steps are taken where a bucket is sorted, and by every probe in every
bucket that it enters. A probe that enters a bucket soon behind another one takes fewer steps
(``thetastream.kernels.walk.step_to``); here it counts like the others, as in the paper.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from bench.core.internals import walk_kernel


@contextmanager
def count_steps() -> Iterator[Callable[[], int]]:
    """Count the steps of every walk inside the block; the yielded function returns their number."""
    walk, steps = walk_kernel.walk, 0

    def counting(rows: Any, offsets: Any, suffix: int, first: Any, last: Any, *rest: Any) -> int:
        nonlocal steps
        cursor = rest[7]
        # A walk that continues behind a full buffer is not counted.
        if suffix >= 0 and cursor[0] == 0 and cursor[1] < 0:
            steps += compute_steps(offsets, first, last)
        return int(walk(rows, offsets, suffix, first, last, *rest))

    with mock.patch.object(walk_kernel, "walk", counting):
        yield lambda: steps


def compute_steps(offsets: Any, first: Any, last: Any) -> int:
    """Compute the steps of probes that enter the buckets [first, last), which begin and end at ``offsets``.

    >>> compute_steps(np.array([0, 8, 9]), np.array([0, 1]), np.array([2, 2]))
    6
    """
    bits = np.frexp(np.diff(offsets))[1]
    until = np.concatenate([[0], np.cumsum(bits)])
    return int((until[np.maximum(first, last)] - until[first]).sum())
