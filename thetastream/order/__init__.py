"""Ordered results: how much order, and the gathering that makes it."""

from thetastream.order.gather import gather
from thetastream.order.spec import Order, read_order

__all__ = ["Order", "gather", "read_order"]
