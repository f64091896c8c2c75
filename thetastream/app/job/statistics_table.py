"""Writes measured statistics as the table of a job file that has them.

Statistics(tuples_per_second=(12.5, 3.0), epoch_s=2.0)  ->  [statistics]
                                                            tuples_per_second = [12.5, 3]
                                                            epoch_s = 2
"""

import json
from collections.abc import Mapping
from dataclasses import fields

from thetastream.lowering.statistics import Statistics

_DIGITS = 6


def select_known(statistics: Statistics) -> dict[str, object]:
    """Return the parameters of statistics that have another value than by default, with six digits.

    >>> select_known(Statistics({"a": 1 / 3, "b": 1000.0}, origin="measured"))
    {'tuples_per_second': {'a': 0.333333, 'b': 1000.0}, 'origin': 'measured'}
    """
    given = {one.name: (getattr(statistics, one.name), one.default) for one in fields(statistics)}
    return {name: _round(value) for name, (value, default) in given.items() if value != default}


def write_table(statistics: Statistics) -> str:
    """Write statistics as the table ``[statistics]`` of a job file.

    >>> print(write_table(Statistics({"a": 1 / 3, "b": 1000.0}, (80.0, 64.0), origin="measured")))
    [statistics]
    tuples_per_second = { "a" = 0.333333, "b" = 1000 }
    bytes_per_tuple = [80, 64]
    origin = "measured"
    """
    lines = (f"{name} = {_write(value)}" for name, value in select_known(statistics).items())
    return "\n".join(["[statistics]", *lines])


def _round(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _round(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return [_round(one) for one in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _write(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_write(name)} = {_write(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write, value)) + "]"
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
