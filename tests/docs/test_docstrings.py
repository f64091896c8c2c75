"""Every example in a docstring runs, and prints what it shows. Examples marked ``+SKIP`` need streams."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import thetastream as th

ROOMS = sorted(room.name for room in pkgutil.iter_modules(th.__path__))


@pytest.mark.parametrize("room", ROOMS)
def test_examples_in_docstrings_run(room: str) -> None:
    top = import_module(f"thetastream.{room}")
    inside = pkgutil.walk_packages(getattr(top, "__path__", []), f"{top.__name__}.")
    modules = [top, *(import_module(one.name) for one in inside if not one.name.endswith("__main__"))]
    assert [(module.__name__, doctest.testmod(module).failed) for module in modules] == [
        (module.__name__, 0) for module in modules
    ]
