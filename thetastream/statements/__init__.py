"""Streaming SQL, with statements such as ``SELECT ONLINE ... FROM r, s WHERE ... WITHIN 10 minutes``."""

from thetastream.statements.aggregate import aggregate
from thetastream.statements.insert import insert
from thetastream.statements.sql import sql

__all__ = ["aggregate", "insert", "sql"]
