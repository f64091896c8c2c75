"""Stores keep results. To add a store, write one file and add one line to ``REGISTRY``."""

from thetastream.stores.base import Store
from thetastream.stores.parquet import ParquetStore

REGISTRY: dict[str, type[Store]] = {store.kind: store for store in (ParquetStore,)}
"""All kinds of stores, by name."""

__all__ = ["REGISTRY", "ParquetStore", "Store"]
