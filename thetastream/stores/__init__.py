"""Stores keep results. ``registry`` finds them by the names of their kinds, also those of other packages."""

from thetastream.stores.cassandra import CassandraStore
from thetastream.stores.delta import DeltaStore
from thetastream.stores.hbase import HBaseStore
from thetastream.stores.parquet import ParquetStore
from thetastream.stores.postgres import PostgresStore
from thetastream.stores.registry import REGISTRY, find_kind, list_kinds, make_store, name_store, read_store

__all__ = [
    "REGISTRY",
    "CassandraStore",
    "DeltaStore",
    "HBaseStore",
    "ParquetStore",
    "PostgresStore",
    "find_kind",
    "list_kinds",
    "make_store",
    "name_store",
    "read_store",
]
