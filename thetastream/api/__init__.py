"""The functions of ``thetastream`` that join streams, keep results in a store, and read them again."""

from thetastream.api.column import col, from_nanos
from thetastream.api.join import join, plan
from thetastream.api.join_many import join_many
from thetastream.api.read import read_results
from thetastream.api.write import write

__all__ = ["col", "from_nanos", "join", "join_many", "plan", "read_results", "write"]
