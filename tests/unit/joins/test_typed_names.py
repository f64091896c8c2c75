"""The names in signatures are those that the functions read."""

from typing import get_args, get_type_hints

from thetastream.core.how import HOWS, JoinKind
from thetastream.core.shed import CURVES, Shed
from thetastream.families.option_values import IndexName
from thetastream.index import REGISTRY
from thetastream.joins.ask.request import _OTHER_NAMES, read_how


def test_index_shapes() -> None:
    assert get_args(IndexName) == tuple(REGISTRY)


def test_kinds_of_joins() -> None:
    kinds = get_args(JoinKind)
    assert {read_how(kind).name for kind in kinds} == HOWS.keys()
    assert {kind.replace("_", "") for kind in kinds} == HOWS.keys() | _OTHER_NAMES.keys()


def test_curves_of_a_shedder() -> None:
    assert get_args(get_type_hints(Shed)["curve"]) == tuple(CURVES)
