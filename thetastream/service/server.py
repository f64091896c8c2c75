"""Runs the service on a socket that listens, within the limits of its connections."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from thetastream.core.errors import QueryError
from thetastream.service.connections import Connections, ListeningSocket
from thetastream.service.limits import Limits

BACKLOG = 512
"""The number of connections that the system keeps until the service accepts them."""


class Server(uvicorn.Server):
    """An HTTP server of one application.

    Parameters
    ----------
    app : ASGI application
    limits : Limits
        The limits of its connections.
    tls_cert, tls_key : Path, optional
        A certificate and its key, for HTTPS.
    proxy : str, optional
        The addresses of proxies, separated by commas. The service believes what they say about clients in
        the headers ``X-Forwarded-For`` and ``X-Forwarded-Proto``.

    Raises
    ------
    QueryError
        CERTIFICATE if the certificate or its key cannot be used.
    """

    def __init__(
        self,
        app: Any,
        limits: Limits,
        *,
        tls_cert: Path | None = None,
        tls_key: Path | None = None,
        proxy: str | None = None,
    ) -> None:
        if proxy is not None:
            # All clients of a proxy have its address. The proxy itself bounds their connections.
            limits = replace(limits, connections_per_client=limits.connections)
        self.open_connections = Connections(limits)
        config = uvicorn.Config(
            app,
            # Only this event loop asks the socket itself to accept.
            loop="asyncio",
            http=self.open_connections.make_protocol,  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            # Anybody can cause warnings.
            log_level="error",
            access_log=False,
            proxy_headers=proxy is not None,
            forwarded_allow_ips=proxy or "",
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=2,
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
        )
        load_certificate(config)
        super().__init__(config)

    def listen(self, port: socket.socket) -> None:
        """Serve the connections of a socket until the process gets a signal to end."""
        with ListeningSocket(port, self.open_connections) as listener:
            self.run(sockets=[listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, and to end those whose time is over."""
        await super().startup(sockets)
        self._ending = asyncio.create_task(self.open_connections.end_late_ones())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all connections."""
        self._ending.cancel()
        await super().shutdown(sockets)


def load_certificate(config: uvicorn.Config) -> None:
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
