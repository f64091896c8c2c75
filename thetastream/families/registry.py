"""The families of joins, in the order in which they are asked."""

from thetastream.families.answers import ANSWERS
from thetastream.families.base import Family
from thetastream.families.chain import CHAIN
from thetastream.families.hops.plan import HOPS
from thetastream.families.pairs.plan import PAIRS
from thetastream.families.request import JoinRequest

FAMILIES: tuple[Family, ...] = (HOPS, CHAIN, ANSWERS, PAIRS)


def find_family(request: JoinRequest) -> Family | None:
    """Find the family that plans a request. If none joins so many inputs at once, joins of two inputs do."""
    return next((family for family in FAMILIES if family.takes(request)), None)
