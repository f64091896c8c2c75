"""Ordered results: the order that the user asks for, and the function that establishes it."""

from thetastream.engine.order.spec import Order, read_order, sort_results

__all__ = ["Order", "read_order", "sort_results"]
