"""Runs the service on a socket that listens, and bounds its connections before anybody has shown a token.

    accept      at most ``connections``, and ``connections_per_client`` from one address
    request     header within ``header_seconds``, body within ``body_seconds``
    answer      the client takes a piece of it within ``send_seconds``

If there are too many connections, the one that has waited longest for its request makes room, so half
requests keep nobody out. A connection whose time is over is closed, and one whose client has left while its
question is answered.
"""

import asyncio
import errno
import os
import select
import socket
import stat
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from thetastream.core.errors import QueryError
from thetastream.core.listening import name_client
from thetastream.core.private_folder import refuse_unsafe
from thetastream.service.limits import Limits

BACKLOG = 512
"""The number of connections that the system keeps until the service accepts them."""

SWEEP_S = 0.5
"""The time after which the connections are looked at again, in seconds."""
LEFT = getattr(select, "POLLRDHUP", 0)
"""The event of a client that sends no more. Systems other than Linux tell only that it receives no more."""
NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""The errors of a system that can open no more connections."""


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
        CERTIFICATE if the certificate or its key cannot be used, or if others can read the key.
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
        CERTIFICATE if the certificate or its key cannot be used, or if others can read the key.
    SessionError
        UNSAFE_FOLDER if others can replace the key.
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
    if config.ssl_certfile is not None:
        _refuse_shared_key(Path(config.ssl_keyfile or config.ssl_certfile))


def _refuse_shared_key(file: Path) -> None:
    """Refuse a key that others can read or replace. As in PostgreSQL, a group may read a key of root."""
    refuse_unsafe(file)
    known = file.stat()
    shared = stat.S_IRWXO | (stat.S_IWGRP if known.st_uid == 0 else stat.S_IRWXG)
    if known.st_mode & shared or known.st_uid not in (os.geteuid(), 0):
        what = f"others can read the key {file}, and could answer in place of the service"
        raise QueryError("CERTIFICATE", f"{what}: make a new key, and call chmod 600 {file}")


@dataclass(eq=False)
class Connection:
    """One connection, and the times at which it is closed."""

    socket: socket.socket
    client: str
    request_by: float | None
    """The time by which the request must be complete; None while it is answered."""
    send_by: float | None = None
    """The time by which the client must have taken a part of the answer; None if it need not."""
    transport: Any = None
    """The object of the event loop that reads and writes; None before the handshake of TLS has ended."""

    def is_late(self, now: float) -> bool:
        """Whether a time is over."""
        return min(self.request_by or now + 1, self.send_by or now + 1) < now

    def end(self) -> None:
        """Let the event loop find the connection closed. It then forgets what it wanted to send."""
        with suppress(OSError):  # The client has gone.
            self.socket.shutdown(socket.SHUT_RDWR)
        if self.transport is not None:
            # A connection from which the event loop reads nothing is not found closed.
            self.transport.abort()


class Connections:
    """The connections of one service."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # In the order in which they were accepted.
        self._open: dict[int, Connection] = {}
        self._per_client: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def find(self, number: int) -> Connection | None:
        """Find a connection by the number of its file."""
        return self._open.get(number)

    def add(self, accepted: socket.socket, address: Any) -> bool:
        """Add a connection, or return False if there is no room and none can make room."""
        client = name_client(str(address[0]))
        if self._per_client[client] >= self._limits.connections_per_client:
            has_room = self._make_room(client)
        else:
            has_room = len(self._open) < self._limits.connections or self._make_room(None)
        if has_room:
            request_by = time.monotonic() + self._limits.header_seconds
            self._open[accepted.fileno()] = Connection(accepted, client, request_by)
            self._per_client[client] += 1
        return has_room

    def remove(self, number: int) -> None:
        """Forget a connection that is closed."""
        found = self._open.pop(number, None)
        if found is not None:
            self._per_client[found.client] -= 1
            if not self._per_client[found.client]:
                del self._per_client[found.client]

    def _make_room(self, client: str | None) -> bool:
        """End the connection, of one client or of all, that has waited longest for its request."""
        waiting = [
            one for one in self._open.values() if one.request_by is not None and client in (None, one.client)
        ]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda one: one.request_by or 0.0)
        oldest.end()
        # It counts no more, although the event loop closes it a moment later.
        self.remove(oldest.socket.fileno())
        return True

    async def end_late_ones(self) -> None:
        """End connections whose time is over, until the task is cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = time.monotonic()
            for one in [one for one in self._open.values() if one.is_late(now)] + self._list_left():
                one.end()

    def _list_left(self) -> list[Connection]:
        """List the connections whose clients have left while they are answered.

        The event loop reads nothing from a client that has sent a second request before the first answer, so
        it does not notice that this client leaves.
        """
        found = select.poll()
        for number, one in self._open.items():
            if one.request_by is None:
                found.register(number, LEFT)
        return [self._open[number] for number, _ in found.poll(0)]

    def make_protocol(self, **options: Any) -> "BoundedProtocol":
        """Make the protocol of one connection, as uvicorn asks for it."""
        return BoundedProtocol(self, self._limits, **options)


class ListeningSocket(socket.socket):
    """A listening socket that accepts connections within limits, also before TLS begins.

    Parameters
    ----------
    port : socket
        The socket that listens. This object takes its file.
    connections : Connections
    """

    def __init__(self, port: socket.socket, connections: Connections) -> None:
        super().__init__(port.family, port.type, port.proto, fileno=port.detach())
        self._connections = connections
        # If the system has no more files, this one makes room to accept a connection and to close it.
        self._spare = os.open(os.devnull, os.O_RDONLY)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. One without room is closed. The event loop takes it for a client that left."""
        try:
            number, address = self._accept()  # type: ignore[attr-defined]
        except OSError as error:
            if error.errno in NO_FILES:
                self._refuse_without_files()
            raise
        accepted = AcceptedSocket(self.family, self.type, self.proto, fileno=number)
        if not self._connections.add(accepted, address):
            accepted.close()
            raise ConnectionAbortedError
        accepted.forget = partial(self._connections.remove, number)
        return accepted, address

    def close(self) -> None:
        """Close the socket."""
        if self.fileno() >= 0:
            os.close(self._spare)
        super().close()

    def _refuse_without_files(self) -> None:
        os.close(self._spare)
        try:
            number, _ = self._accept()  # type: ignore[attr-defined]
            os.close(number)
        finally:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        raise ConnectionAbortedError


class AcceptedSocket(socket.socket):
    """The socket of a connection. It says when it is closed."""

    forget: Any = None

    def close(self) -> None:
        """Close the socket."""
        if self.forget is not None and self.fileno() >= 0:
            self.forget()
        super().close()


class BoundedProtocol(H11Protocol):
    """HTTP on one connection, with times by which its client must act."""

    def __init__(self, connections: Connections, limits: Limits, **options: Any) -> None:
        super().__init__(**options)
        self._all = connections
        self._limits = limits
        self._known: Connection | None = None
        self._body_of: Any = None
        """The request whose body has a time already."""

    def connection_made(self, transport: Any) -> None:
        self._known = self._all.find(transport.get_extra_info("socket").fileno())
        if self._known is not None:
            self._known.transport = transport
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_time()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._set_time()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._known is not None:
            self._known.send_by = time.monotonic() + self._limits.send_seconds

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._known is not None:
            self._known.send_by = None

    def _set_time(self) -> None:
        """Set the time by which the request must be complete."""
        if self._known is None:
            return
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            if self._known.request_by is None:
                self._known.request_by = time.monotonic() + self._limits.header_seconds
        elif not cycle.more_body:
            self._known.request_by = None
        elif cycle is not self._body_of:
            self._body_of = cycle
            self._known.request_by = time.monotonic() + self._limits.body_seconds
