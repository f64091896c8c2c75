"""Streaming SQL: ``SELECT ONLINE ... FROM r, s WHERE ... WITHIN 10 minutes``."""

from thetastream.sql.query import sql

__all__ = ["sql"]
