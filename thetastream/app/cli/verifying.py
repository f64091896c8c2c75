"""The command that reads a whole store and lists all that is damaged; it starts no Spark."""

import argparse
import json
from dataclasses import asdict
from urllib.parse import urlsplit

from thetastream.app.cli.serving import read_named_store
from thetastream.app.cli.shared_arguments import AddCommand
from thetastream.core.errors import QueryError
from thetastream.results.store import Store
from thetastream.stores import CassandraStore, HBaseStore, PostgresStore


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "verify",
        verify,
        "read a store of results and list all that is damaged, without Spark",
        description="Read everything that the commits of a store name, and compare it with what they say. "
        "Nothing is changed. The exit code is 1 if something is damaged.",
        epilog="examples:\n  thetastream verify out/pairs\n  thetastream verify delta:s3://bucket/pairs"
        "\n  thetastream verify postgresql:///results --table pairs",
    )
    parser.add_argument(
        "store", metavar="STORE", help="a Parquet store, delta:PATH, or the address of a database"
    )
    parser.add_argument("--table", metavar="NAME", help="the table of a store in a database")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def verify(arguments: argparse.Namespace) -> int:
    """Print what a store has, and all that is damaged."""
    found = read_store_address(arguments.store, arguments.table).verify()
    if arguments.json:
        print(json.dumps(asdict(found)))
    else:
        print(f"entries    {found.entries}")
        print(f"snapshots  {found.snapshots}")
        print(f"parts      {found.parts}")
        print(f"rows       {found.rows:,}")
        print(f"damages    {len(found.problems)}")
        for problem in found.problems:
            print(f"- {problem}")
    return 0 if found.is_intact else 1


def read_store_address(text: str, table: str | None) -> Store:
    """Read the address of a store.

    >>> read_store_address("delta:/out/pairs", None)
    DeltaStore(path='/out/pairs')
    >>> read_store_address("hbase://host:9090", "pairs")
    HBaseStore(address='host:9090', table='pairs')
    """
    if table is None:
        return read_named_store(text)[1]
    parts = urlsplit(text)
    if parts.scheme in ("postgresql", "postgres"):
        return PostgresStore(text, table)
    if parts.scheme == "cassandra":
        return CassandraStore(text, table)
    if parts.scheme == "hbase":
        return HBaseStore(parts.netloc, table)
    what = "--table needs an address that begins with postgresql://, cassandra:// or hbase://"
    raise QueryError("BAD_VALUE", f"{what}, not {text!r}")
