"""Fixtures of tests that run joins in Spark."""

from collections.abc import Callable

import pytest

from thetastream.joins.compose import pipeline
from thetastream.joins.compose.tree import JoinTree


@pytest.fixture
def use_tree(monkeypatch: pytest.MonkeyPatch) -> Callable[[JoinTree], None]:
    """Return a function that makes every pipeline use a tree of joins."""
    return lambda tree: monkeypatch.setattr(pipeline, "_choose_tree", lambda *_: (tree, "a test asks for it"))
