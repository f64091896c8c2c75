"""Refuses requests of clients that may not use the service.

If the service has a token, every client must send it. Otherwise only clients on this machine may use the
service, and their requests must name this machine: a web page whose host name resolves to 127.0.0.1 could
otherwise read the results through the browser of a user (DNS rebinding).
"""

import hmac
from ipaddress import ip_address
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from thetastream.errors import QueryError

PUBLIC, PAGE = ("/health", "/"), "/page/"
"""Paths that need no token, and a prefix of such paths. Their answers contain no results and no queries."""
LARGEST_BODY = 1 << 20
"""The bytes of the largest body of a request."""


class Guard:
    """An ASGI middleware that refuses requests of clients that may not use the service."""

    def __init__(self, app: Any, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or pass it on."""
        refusal = self._refuse(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, _limit_body(receive), send)

    def _refuse(self, scope: Any) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if self._token is None:
            if is_loopback(_read_host(headers.get("host", ""))):
                return None
            return _make_refusal(
                403, "FORBIDDEN_HOST", "a service without a token answers for localhost only"
            )
        kind, _, given = headers.get("authorization", "").partition(" ")
        is_known = kind.lower() == "bearer" and hmac.compare_digest(given.encode(), self._token.encode())
        if is_known or scope["path"] in PUBLIC or scope["path"].startswith(PAGE):
            return None
        what = "give the token of the service in the header 'Authorization: Bearer TOKEN'"
        return _make_refusal(401, "TOKEN", what, {"WWW-Authenticate": "Bearer"})


def _limit_body(receive: Any) -> Any:
    """Receive the body of a request, and refuse it as soon as it has more bytes than it may have."""
    n_bytes = 0

    async def receive_part() -> Any:
        nonlocal n_bytes
        part = await receive()
        n_bytes += len(part.get("body", b""))
        if n_bytes > LARGEST_BODY:
            raise HTTPException(413, f"a body may have {LARGEST_BODY:,} bytes, and this one has more")
        return part

    return receive_part


def refuse_token(token: str, where: str) -> None:
    """Raise if no client can send this token in a header, or if everybody knows it because it is empty.

    Raises
    ------
    QueryError
        TOKEN.
    """
    if not token or not token.isascii() or not token.isprintable() or token != token.strip():
        what = "a token must be one line of ASCII characters without blanks around it"
        raise QueryError("TOKEN", f"{what}, and that of {where} is not: make one by 'openssl rand -hex 16'")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _read_host(header: str) -> str:
    """Read the host from the header ``Host``, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _make_refusal(
    status: int, condition: str, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"condition": condition, "message": message}, status, headers)
