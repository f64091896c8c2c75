"""Results that are kept: ``th.write`` puts them into a store, and ``th.read_results`` reads them."""

from thetastream.results.read import read_results
from thetastream.results.write import write

__all__ = ["read_results", "write"]
