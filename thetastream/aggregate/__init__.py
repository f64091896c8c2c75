"""Online aggregation (BiStream 3.4.2): units fold their matches into local views, and Spark merges the views.

To add an aggregate function, write one file with a subclass of ``Aggregate`` and add one line to
``REGISTRY``. Only planning reads the registry. The plan carries the measure functions that it needs to the
workers by value.
"""

from thetastream.aggregate.base import Aggregate, Measure, MeasureFunction, NotFoldable
from thetastream.aggregate.count import Count
from thetastream.aggregate.deviation import Deviation
from thetastream.aggregate.distinct import ApproximateDistinct
from thetastream.aggregate.extremes import Maximum, Minimum
from thetastream.aggregate.lazy import Lazy
from thetastream.aggregate.sums import Average, Sum
from thetastream.aggregate.view import Fold, LocalView, Pane, fold_matches

REGISTRY: dict[str, Aggregate] = {
    name: aggregate
    for aggregate in (
        Count(),
        Sum(),
        Average(),
        Minimum(),
        Maximum(),
        Deviation(),
        ApproximateDistinct(),
    )
    for name in aggregate.names
}
"""Aggregates by their SQL names, which are in upper case."""

__all__ = [
    "REGISTRY",
    "Aggregate",
    "Fold",
    "Lazy",
    "LocalView",
    "Measure",
    "MeasureFunction",
    "NotFoldable",
    "Pane",
    "fold_matches",
]
