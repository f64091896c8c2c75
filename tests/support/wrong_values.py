"""Values that users pass by mistake, for tests of the errors of public functions."""

from datetime import timedelta
from typing import Any

import thetastream as th

WRONG: list[Any] = [
    *(0, -1, 2.5, float("nan"), 10**30, True, "", "x", "a.b.c", "(", "`", "'", b"x", timedelta(0)),
    *([], ["x"], (), {}, {"a": 1}, {1: 2}, object(), th.Rows, lambda row: row),
]
