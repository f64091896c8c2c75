"""Ordered results: the order that the user asks for, and the function that establishes it."""

from thetastream.order.sorting import sort_results
from thetastream.order.spec import Order, read_order

__all__ = ["Order", "read_order", "sort_results"]
