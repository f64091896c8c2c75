"""Streaming SQL, with statements such as ``SELECT ONLINE ... FROM r, s WHERE ... WITHIN 10 minutes``."""

from thetastream.sql.aggregate import aggregate
from thetastream.sql.insert import insert
from thetastream.sql.query import sql

__all__ = ["aggregate", "insert", "sql"]
