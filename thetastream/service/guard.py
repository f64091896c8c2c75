"""Refuses requests of clients that may not use the service.

If the service has a token, every client must send it. Otherwise only clients on this machine may use the
service, and their requests must name this machine: a web page whose host name resolves to 127.0.0.1 could
otherwise read the results through the browser of a user (DNS rebinding).
"""

import hmac
from ipaddress import ip_address
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

PUBLIC, PAGE = ("/health", "/"), "/page/"
"""Paths that need no token, and a prefix of such paths. Their answers contain no results and no queries."""


class Guard:
    """An ASGI middleware that refuses requests of clients that may not use the service."""

    def __init__(self, app: Any, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or pass it on."""
        refusal = self._refuse(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

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
