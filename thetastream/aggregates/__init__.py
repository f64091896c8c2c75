"""Online aggregation (BiStream 3.4.2): units fold their matches into local views, and Spark merges the views.

To add an aggregate function, write one file with a subclass of ``Aggregate`` and add one line to
``REGISTRY``. Only planning reads the registry. The plan carries the measure functions that it needs to the
workers by value.
"""

from thetastream.aggregates.base import Aggregate, Measure, MeasureFunction, NotFoldable
from thetastream.aggregates.distinct import ApproximateDistinct
from thetastream.aggregates.moments import Deviation
from thetastream.aggregates.simple import Average, Count, Maximum, Minimum, Sum

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

__all__ = ["REGISTRY", "Aggregate", "Measure", "MeasureFunction", "NotFoldable"]
