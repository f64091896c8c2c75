"""Refuses a PySpark that is too old when the package is imported. A platform may bring one of its own."""

import re

import pyspark

OLDEST = (4, 2)


def check_pyspark() -> None:
    """Refuse an older PySpark in one sentence. Its first missing module would be a riddle.

    Raises
    ------
    ImportError
        If PySpark is older than ``OLDEST``.
    """
    found = tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:2]))
    if found < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise ImportError(
            f"thetastream needs PySpark {needed} or later, and this Python has {pyspark.__version__}: "
            "install it, or choose a newer version of Spark on your platform"
        )


check_pyspark()
