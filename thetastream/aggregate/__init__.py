"""Online aggregation (BiStream 3.4.2): units fold their matches into local views, Spark merges the views."""

from thetastream.aggregate.accumulator import Measure, columns_of
from thetastream.aggregate.lazy import Lazy
from thetastream.aggregate.view import Fold, LocalView, Pane, view_of

__all__ = ["Fold", "Lazy", "LocalView", "Measure", "Pane", "columns_of", "view_of"]
