"""The command that serves stores of results and running queries over HTTP; it starts no Spark."""

import argparse
import os
import resource
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from thetastream.cli.shared_arguments import AddCommand, read_positive
from thetastream.core.listening import open_port
from thetastream.errors import QueryError
from thetastream.stores import DeltaStore, ParquetStore, Store
from thetastream.stores.base import make_unreachable

if TYPE_CHECKING:
    import uvicorn

TOKEN = "THETASTREAM_TOKEN"  # noqa: S105 (the name of a variable)
"""The environment variable that may hold the token."""
SHORTEST_TOKEN = 16
"""The least number of characters of a token."""
DELTA = "delta:"
"""The prefix of a path that names a Delta table."""


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "serve",
        serve,
        "show running queries on a page, answer questions to stores of results, and send new snapshots to "
        "subscribers",
        description="A service without a token answers requests from this machine only.",
        epilog="examples:\n  thetastream serve out/pairs --metrics out/metrics.jsonl"
        "\n  THETASTREAM_TOKEN=... thetastream serve pairs=s3://bucket/pairs --host 0.0.0.0",
    )
    parser.add_argument("store", nargs="*", metavar="[NAME=]PATH", help="a Parquet store, or delta:PATH")
    parser.add_argument(
        "--metrics",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="a file of metrics, which th.export_metrics(json_lines=...) or thetastream run --metrics writes",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="the port (default %(default)s)")
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"the file with the token that clients must send (default: the variable {TOKEN})",
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="a certificate, for HTTPS")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="the key of the certificate")
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
        import uvicorn

        from thetastream.service import Limits, build_app
        from thetastream.service.guard import is_loopback, refuse_token
    except ImportError as error:
        what = f"serve needs FastAPI, uvicorn and DuckDB, and {error.name} is missing"
        raise QueryError("MISSING_PACKAGE", f"{what}: pip install 'thetastream[serve]'") from error

    if not arguments.store and not arguments.metrics:
        raise QueryError("BAD_VALUE", "serve needs a store, or --metrics FILE")
    token = read_token(arguments.token_file)
    if token is None and not is_loopback(arguments.host):
        what = f"host {arguments.host} can be reached from other machines, so the service needs a token"
        raise QueryError("TOKEN", f"{what}: set {TOKEN}, or pass --token-file")
    if token is not None:
        refuse_token(token, TOKEN if arguments.token_file is None else str(arguments.token_file))
    stores, limits = read_stores(arguments.store), Limits(rows=arguments.max_rows, memory=arguments.memory)
    refuse_missing_files(arguments.metrics)
    app = build_app(stores, metrics=arguments.metrics, token=token, limits=limits)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=2,
        ssl_certfile=arguments.tls_cert,
        ssl_keyfile=arguments.tls_key,
    )
    load_certificate(config)
    _allow_connections()
    with open_port(arguments.host, arguments.port) as port, suppress(KeyboardInterrupt):
        scheme = "http" if arguments.tls_cert is None else "https"
        print(f"The page is {write_address(scheme, arguments.host, port.getsockname()[1])}", flush=True)
        uvicorn.Server(config).run(sockets=[port])
    return 0


def write_address(scheme: str, host: str, port: int) -> str:
    """Write the address of a service. A URI has an IPv6 address in brackets.

    >>> write_address("http", "localhost", 8080), write_address("https", "::1", 8443)
    ('http://localhost:8080', 'https://[::1]:8443')
    """
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def load_certificate(config: "uvicorn.Config") -> None:
    """Load the certificate and its key, if there are any, before the service listens.

    Raises
    ------
    QueryError
        CERTIFICATE if the certificate or its key cannot be used.
    """
    if config.ssl_keyfile is not None and config.ssl_certfile is None:
        raise QueryError(
            "CERTIFICATE", "--tls-key needs the certificate of the key: pass --tls-cert FILE too"
        )
    try:
        config.load()
    except OSError as error:
        what = f"the certificate {config.ssl_certfile} cannot be used: {error}"
        raise QueryError(
            "CERTIFICATE", f"{what}; pass both files as PEM, --tls-cert and --tls-key"
        ) from error


def read_stores(texts: Sequence[str]) -> dict[str, Store]:
    """Read stores by their names, and refuse a store that does not exist before the service starts."""
    stores: dict[str, Store] = {}
    for name, store in map(read_named_store, texts):
        if name in stores:
            raise QueryError(
                "BAD_VALUE", f"two stores have the name {name!r}: give each one its own, as in NAME=PATH"
            )
        try:
            store.description  # noqa: B018 (it raises NO_STORE)
        except (OSError, pa.ArrowException) as error:
            raise make_unreachable(str(store), error) from None
        stores[name] = store
    return stores


def refuse_missing_files(metrics: Sequence[Path]) -> None:
    """Refuse files of metrics that do not exist."""
    for file in metrics:
        if not file.is_file():
            what = f"--metrics must name a file of metrics, and there is no file {file}"
            raise QueryError("NO_METRICS", f"{what}; start the query that writes it first")


def _allow_connections() -> None:
    """Raise the limit of open files to what the system allows, because each connection is an open file."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def read_named_store(text: str) -> tuple[str, Store]:
    """Read ``NAME=PATH`` or ``PATH``. Without a name, the last part of the path is the name.

    The name has no user, password or options of a URI, because clients see it.

    The path of a Delta table begins with ``delta:``.

    >>> read_named_store("/out/pairs")
    ('pairs', ParquetStore(path='/out/pairs'))
    >>> read_named_store("p=delta:/out/pairs")
    ('p', DeltaStore(path='/out/pairs'))
    """
    before, equals, after = text.partition("=")
    name, path = (before, after) if equals and "/" not in before else ("", text)
    kind = DeltaStore if path.startswith(DELTA) else ParquetStore
    path = path.removeprefix(DELTA)
    if not path or name in (".", ".."):  # Clients remove such parts from an address.
        raise QueryError("BAD_VALUE", f"a store must be PATH or NAME=PATH, not {text!r}")
    store = kind(path)
    name = name or store.name.rstrip("/").rpartition("/")[2]
    if not name:
        raise QueryError("BAD_VALUE", f"the path {text!r} ends with no name: give one, as in NAME={text}")
    return name, store


def read_token(file: Path | None) -> str | None:
    """Read the token from a file, or from the environment; None if there is none."""
    try:
        token = os.environ.get(TOKEN) if file is None else file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError("TOKEN", f"--token-file must name a file that can be read: {error}") from error
    if token is not None and len(token) < SHORTEST_TOKEN:
        where = f"the variable {TOKEN}" if file is None else str(file)
        what = f"a token must have at least {SHORTEST_TOKEN} characters, and that of {where} has {len(token)}"
        raise QueryError("TOKEN", f"{what}: make one by 'openssl rand -hex 16'")
    return token
