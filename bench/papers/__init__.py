"""Figures of papers, drawn again.

Each paper is a package. Its docstring is the head of its page, and ``FIGURES`` names its modules in the order
of the page. Each module declares ``FIGURE``. ``QUICK_SCALE`` is the scale of a small run, which tests that
the figures work.
"""

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.core.figure import Figure

PAPERS = ("bistream", "splitjoin", "psp", "esj")
ALL = "figures"


def package(paper: str) -> Any:
    return import_module(f"bench.papers.{paper}")


def names(paper: str) -> list[str]:
    """Return the names of the figures of a paper, or of all papers."""
    if paper == ALL:
        return [name for one in PAPERS for name in names(one)]
    return [module.replace("_", "-") for module in package(paper).FIGURES]


def paper_of(name: str) -> str:
    return next(paper for paper in PAPERS if name in names(paper))


def is_known(name: str) -> bool:
    """Whether a name is that of a figure, of a paper, or of all papers."""
    return name in (ALL, *PAPERS, *names(ALL))


def figure(name: str) -> "Figure":
    module = import_module(f"bench.papers.{paper_of(name)}.{name.replace('-', '_')}")
    found: Figure = replace(module.FIGURE, doc=module.__doc__)
    return found
