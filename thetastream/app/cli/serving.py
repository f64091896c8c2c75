"""The commands that serve stores and running queries over HTTP, and verify a store, without Spark."""

import argparse
import json
import os
import resource
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from thetastream.app.cli.shared_arguments import AddCommand, read_positive
from thetastream.app.job.document import find_checkpoint
from thetastream.core.addresses import hide_secrets
from thetastream.core.errors import QueryError
from thetastream.core.listening import is_loopback, open_port
from thetastream.core.plain_text import show_controls
from thetastream.core.private_folder import refuse_unsafe
from thetastream.results.backend import make_unreachable
from thetastream.results.store import Store
from thetastream.runtime.control.newest_offset import list_joins
from thetastream.stores import REGISTRY, name_store, read_store

if TYPE_CHECKING:
    from fastapi import FastAPI

TOKEN = "THETASTREAM_TOKEN"  # noqa: S105 (the name of a variable)
"""The environment variable that may hold the token."""
SHORTEST_TOKEN = 16
"""The least number of characters of a token."""
STORE_HELP = (
    "the path of a Parquet store, or KIND:ADDRESS, as in delta:out/pairs or postgres:URL?table=NAME; "
    f"kinds: {', '.join(REGISTRY)}, and those of other packages"
)
OWN_FILES = 256
"""Files that a service opens besides its connections: stores, pipes of its processes, libraries."""


def add_serve(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "serve",
        serve,
        "show running queries on a page, answer questions to stores of results, and send new snapshots to "
        "subscribers",
        description="A service without a token answers requests from this machine only.",
        epilog="examples:\n  thetastream serve out/pairs --metrics out/metrics.jsonl"
        "\n  thetastream serve trades=delta:out/trades 'pairs=postgresql:///results?table=pairs'"
        "\n  THETASTREAM_TOKEN=... thetastream serve pairs=s3://bucket/pairs --host 0.0.0.0",
    )
    parser.add_argument("store", nargs="*", metavar="[NAME=]STORE", help=STORE_HELP)
    parser.add_argument(
        "--metrics",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="a file of metrics, which th.export_metrics(json_lines=...) or thetastream run --metrics writes",
    )
    parser.add_argument(
        "--control",
        action="append",
        default=[],
        metavar="[NAME=]JOB|CHECKPOINT",
        help="a job with max_units, or the checkpoint of such a query, which clients with the right control "
        "may change",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="the port (default %(default)s)")
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"the file with the token that clients must send (default: the variable {TOKEN})",
    )
    parser.add_argument(
        "--tokens",
        type=Path,
        metavar="FILE",
        help="a TOML file of tokens: a table [NAME] for each client, with sha256, stores and rights",
    )
    parser.add_argument(
        "--audit",
        type=Path,
        metavar="FILE",
        help="the file that gets a line of JSON for each question: who asked what, and when",
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="a certificate, for HTTPS")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="the key of the certificate")
    parser.add_argument(
        "--proxy",
        metavar="ADDRESS",
        help="the address of a proxy in front of the service, which says for whom it asks (X-Forwarded-For)",
    )
    parser.add_argument(
        "--max-rows",
        type=read_positive,
        default=100_000,
        metavar="N",
        help="the largest number of rows of an answer (default %(default)s)",
    )
    parser.add_argument(
        "--memory",
        default="2 GB",
        metavar="SIZE",
        help="the memory of all statements of clients, of which four may run at once (default %(default)s)",
    )


def serve(arguments: argparse.Namespace) -> int:
    """Serve stores and the metrics of queries, until the process is stopped."""
    try:
        import duckdb  # noqa: F401 (the processes of statements need it)

        from thetastream.service import Limits, Server, build_app, read_tokens
        from thetastream.service.guard import refuse_token
        from thetastream.service.questions import list_folders
        from thetastream.service.sandbox import find_protections
    except ImportError as error:
        what = f"serve needs FastAPI, uvicorn and DuckDB, and {error.name} is missing"
        raise QueryError("MISSING_PACKAGE", f"{what}: pip install 'thetastream[serve]'") from error

    if not arguments.store and not arguments.metrics and not arguments.control:
        raise QueryError("BAD_VALUE", "serve needs a store, --metrics FILE or --control JOB")
    token = read_token(arguments.token_file)
    is_local = is_loopback(arguments.host)
    if token is None and arguments.tokens is None and (arguments.control or not is_local):
        what = f"host {arguments.host} can be reached from other machines, so the service needs a token"
        if arguments.control:
            what = "whoever may change a query must send a token, also on this machine"
        raise QueryError("TOKEN", f"{what}: set {TOKEN}, or pass --token-file or --tokens")
    if token is not None:
        refuse_token(token, TOKEN if arguments.token_file is None else str(arguments.token_file))
    connections = min(Limits.connections, _allow_files() - OWN_FILES)
    stores = read_stores(arguments.store)
    limits = Limits(rows=arguments.max_rows, memory=arguments.memory, connections=connections)
    refuse_missing_files(arguments.metrics)
    tokens = []
    if arguments.tokens is not None:
        text = _read_private(arguments.tokens, "--tokens")
        tokens = read_tokens(text, str(arguments.tokens), list(stores))
    app = build_app(
        stores,
        metrics=arguments.metrics,
        controls=read_checkpoints(arguments.control),
        token=token,
        tokens=tokens,
        audit=arguments.audit,
        limits=limits,
    )
    server = Server(
        app, limits, tls_cert=arguments.tls_cert, tls_key=arguments.tls_key, proxy=arguments.proxy
    )
    if not is_local and arguments.tls_cert is None and arguments.proxy is None:
        what = f"everybody between a client and host {arguments.host} can read the token and the answers"
        print(f"thetastream: {what}: pass --tls-cert and --tls-key", file=sys.stderr)
    # A port that is taken is known before a process starts.
    open_port(arguments.host, arguments.port).close()
    with suppress(KeyboardInterrupt):
        if stores:
            prepare_statements(app)
        with open_port(arguments.host, arguments.port) as port:
            scheme = "http" if arguments.tls_cert is None else "https"
            print(f"The page is {write_address(scheme, arguments.host, port.getsockname()[1])}", flush=True)
            if stores:
                limiting = find_protections().describe(list_folders(stores))
                print(f"The system limits the processes of statements. {limiting}", flush=True)
            server.listen(port)
    return 0


def prepare_statements(app: "FastAPI") -> None:
    """Start the first process for statements, so that the first question does not wait for it."""
    try:
        app.state.prepare()
    except QueryError:
        what = "no process for statements could start, for the reason above"
        print(f"thetastream: {what}: the service answers questions without a statement only", file=sys.stderr)


def write_address(scheme: str, host: str, port: int) -> str:
    """Write the address of a service. A URI has an IPv6 address in brackets.

    >>> write_address("http", "localhost", 8080), write_address("https", "::1", 8443)
    ('http://localhost:8080', 'https://[::1]:8443')
    """
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def read_stores(texts: Sequence[str]) -> dict[str, Store]:
    """Read stores by their names, and refuse a store that does not exist before the service starts."""
    stores: dict[str, Store] = {}
    for name, store in map(read_named_store, texts):
        if name in stores:
            raise QueryError(
                "BAD_VALUE", f"two stores have the name {name!r}: give each one its own, as in NAME=STORE"
            )
        try:
            store.description  # noqa: B018 (it raises NO_STORE)
        except (OSError, pa.ArrowException) as error:
            raise make_unreachable(str(store), error) from None
        stores[name] = store
    return stores


def read_checkpoints(texts: Sequence[str]) -> dict[str, str]:
    """Read checkpoints by their names, and refuse those that are none before the service starts.

    Without a name, the last part of its path is the name. A job file stands for its checkpoint.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, path = _split_name(text)
        name = name or hide_secrets(path).rstrip("/").rpartition("/")[2].removesuffix(".toml")
        if not name or name in found:
            what = f"two checkpoints have the name {name!r}" if name else f"{text!r} ends with no name"
            raise QueryError("BAD_VALUE", f"{what}: give each one its own, as in NAME=CHECKPOINT")
        checkpoint = find_checkpoint(path)
        list_joins(checkpoint, f"the checkpoint {hide_secrets(checkpoint)}")
        found[name] = checkpoint
    return found


def refuse_missing_files(metrics: Sequence[Path]) -> None:
    """Refuse files of metrics that do not exist."""
    for file in metrics:
        if not file.is_file():
            what = f"--metrics must name a file of metrics, and there is no file {file}"
            raise QueryError("NO_METRICS", f"{what}; start the query that writes it first")


def _allow_files() -> int:
    """Raise the limit of open files, which connections are too, to what the system allows; return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most if most != resource.RLIM_INFINITY else 1 << 20


def read_named_store(text: str) -> tuple[str, Store]:
    """Read ``NAME=STORE`` or ``STORE``. Without a name, the last part of its path, or its table, is the name.

    The name has no user, password or options of a URI, because clients see it.

    >>> read_named_store("/out/pairs")
    ('pairs', ParquetStore(path='/out/pairs'))
    >>> read_named_store("p=delta:/out/pairs")
    ('p', DeltaStore(path='/out/pairs'))
    >>> read_named_store("hbase:host:9090?table=pairs")
    ('pairs', HBaseStore(address='host:9090', table='pairs'))
    """
    name, given = _split_name(text)
    if not given or name in (".", ".."):  # Clients remove such parts from an address.
        raise QueryError("BAD_VALUE", f"a store must be STORE or NAME=STORE, not {text!r}")
    store = read_store(given)
    name = name or name_store(store)
    if not name:
        raise QueryError("BAD_VALUE", f"the path {text!r} ends with no name: give one, as in NAME={text}")
    return name, store


def _split_name(text: str) -> tuple[str, str]:
    """Split ``NAME=ADDRESS``; the name is empty if there is none.

    A colon, a question mark or a slash before the sign belongs to an address with parameters.
    """
    before, equals, after = text.partition("=")
    return (before, after) if equals and not set(before) & set("/:?") else ("", text)


def read_token(file: Path | None) -> str | None:
    """Read the token from a file, or from the environment; None if there is none."""
    token = os.environ.get(TOKEN) if file is None else _read_private(file, "--token-file").strip()
    if token is not None and len(token) < SHORTEST_TOKEN:
        where = f"the variable {TOKEN}" if file is None else str(file)
        what = f"a token must have at least {SHORTEST_TOKEN} characters, and that of {where} has {len(token)}"
        raise QueryError("TOKEN", f"{what}: make one by 'openssl rand -hex 16'")
    return token


def _read_private(file: Path, option: str) -> str:
    """Read a file that only this user can read. ``option`` names it in errors.

    Raises
    ------
    QueryError
        TOKEN.
    SessionError
        UNSAFE_FOLDER if others can put another file in its place.
    """
    try:
        refuse_unsafe(file)
        with file.open() as opened:
            # The file that is read, also if another one takes its place.
            known = os.fstat(opened.fileno())
            if known.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or known.st_uid not in (os.geteuid(), 0):
                what = f"{option} must name a file that only this user can read, and others can read {file}"
                raise QueryError("TOKEN", f"{what}: make a new token, and call chmod 600 {file}")
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError("TOKEN", f"{option} must name a file that can be read: {error}") from error


def add_verify(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "verify",
        verify,
        "read a store of results and list all that is damaged, without Spark",
        description="Read everything that the commits of a store name, and compare it with what they say. "
        "Nothing is changed. The exit code is 1 if something is damaged.",
        epilog="examples:\n  thetastream verify out/pairs\n  thetastream verify delta:s3://bucket/pairs"
        "\n  thetastream verify 'postgresql:///results?table=pairs'",
    )
    parser.add_argument("store", metavar="STORE", help=STORE_HELP)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def verify(arguments: argparse.Namespace) -> int:
    """Print what a store has, and all that is damaged."""
    found = read_store(arguments.store).verify()
    if arguments.json:
        print(json.dumps(asdict(found)))
    else:
        print(f"entries    {found.entries}")
        print(f"snapshots  {found.snapshots}")
        print(f"parts      {found.parts}")
        print(f"rows       {found.rows:,}")
        print(f"damages    {len(found.problems)}")
        for problem in found.problems:
            print(f"- {show_controls(problem)}")
    return 0 if found.is_intact else 1


def add_upkeep(add: AddCommand) -> None:
    """Add this command to the command line."""
    parser = add(
        "upkeep",
        upkeep,
        "forget old results of a store and merge its small files, without Spark",
        description="Forget the snapshots that are older than --keep, merge small files into large ones, and "
        "remove the files that nobody needs. It may run while a query writes and others read, for example "
        "once a day from a scheduler.",
        epilog="examples:\n  thetastream upkeep out/pairs\n  thetastream upkeep out/pairs --keep '30 days'",
    )
    parser.add_argument("store", metavar="STORE", help=STORE_HELP)
    parser.add_argument(
        "--keep", metavar="SPAN", help="the span of results that is kept, up to the newest snapshot"
    )
    parser.add_argument(
        "--grace",
        metavar="SECONDS",
        type=float,
        default=3600.0,
        help="merged and forgotten files stay so long for readers (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def upkeep(arguments: argparse.Namespace) -> int:
    """Look after a store, and print what was done."""
    done = read_store(arguments.store).upkeep(arguments.keep, arguments.grace)
    if arguments.json:
        print(json.dumps(done._asdict()))
    else:
        print(
            f"{done.forgotten} snapshots forgotten, {done.merged} files merged, {done.removed} names removed"
        )
    return 0
