"""Ordered results: the order that the user asks for, and the function that establishes it."""

from thetastream.order.gather import gather
from thetastream.order.spec import Order, read_order

__all__ = ["Order", "gather", "read_order"]
