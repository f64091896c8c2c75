"""Online aggregation (BiStream 3.4.2): units fold their matches into local views, Spark merges the views."""

from thetastream.aggregate.view import Fold, LocalView, Measure, Pane, view_of

__all__ = ["Fold", "LocalView", "Measure", "Pane", "view_of"]
