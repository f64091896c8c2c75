"""Stores keep results. To add a store, write one file and add one line to ``REGISTRY``."""

import json
from dataclasses import asdict

from thetastream.results.store import Store
from thetastream.stores.cassandra import CassandraStore
from thetastream.stores.delta import DeltaStore
from thetastream.stores.hbase import HBaseStore
from thetastream.stores.parquet import ParquetStore
from thetastream.stores.postgres import PostgresStore

STORES: tuple[type[Store], ...] = (ParquetStore, DeltaStore, PostgresStore, CassandraStore, HBaseStore)
REGISTRY: dict[str, type[Store]] = {store.kind: store for store in STORES}
"""All kinds of stores, by name."""


def write_store(store: Store) -> str:
    """Write the kind and the fields of a store as JSON, so that ``read_store`` can make the same store.

    >>> write_store(ParquetStore("/out"))
    '{"kind": "parquet", "path": "/out"}'
    """
    return json.dumps({"kind": store.kind, **asdict(store)})  # type: ignore[call-overload]


def read_store(text: str) -> Store:
    """Read what ``write_store`` wrote.

    >>> read_store('{"kind": "parquet", "path": "/out"}')
    ParquetStore(path='/out')
    """
    options = json.loads(text)
    return REGISTRY[options.pop("kind")](**options)


__all__ = [
    "REGISTRY",
    "CassandraStore",
    "DeltaStore",
    "HBaseStore",
    "ParquetStore",
    "PostgresStore",
    "read_store",
    "write_store",
]
