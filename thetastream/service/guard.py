"""Refuses requests of clients that may not use the service.

If the service has a token, every client must send it. Otherwise only clients on this machine may use the
service, and their requests must name this machine: a web page whose host name resolves to 127.0.0.1 could
otherwise read the results through the browser of a user (DNS rebinding).

A page of another site cannot read answers, but its requests would keep the service busy. Browsers name the
site of a request in the headers ``Sec-Fetch-Site`` and ``Origin``, and only those of the service's own page
are answered.
"""

from collections.abc import Sequence
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from thetastream.core.errors import QueryError
from thetastream.core.listening import is_loopback, read_host
from thetastream.service.access import EVERYBODY, Grant, find_grant

PUBLIC, PAGE = ("/health", "/"), "/page/"
"""Paths that need no token, and a prefix of such paths. Their answers contain no results and no queries."""
LARGEST_BODY = 1 << 20
"""The bytes of the largest body of a request."""
OWN_SITES = ("same-origin", "none")
"""The values of ``Sec-Fetch-Site`` for the page of the service, and for an address that a user has typed."""
ANSWER_HEADERS = {
    # Browsers believe the media type, keep no answer, and give no other site a part of it.
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of each answer, unless the answer has another value."""


class Guard:
    """An ASGI middleware that refuses requests of clients that may not use the service.

    It hands on what the client of a request may do, as ``scope["state"]["grant"]``.
    """

    def __init__(self, app: Any, known: Sequence[Grant]) -> None:
        self._app = app
        self._known = known

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send)
        await (self._refuse(scope) or self._app)(scope, exchange.receive, exchange.send)
        await exchange.end(scope)

    def _refuse(self, scope: Any) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy could take the other one for the length, and the rest of the body for the next request.
            what = "a request must have the length of its body once: Content-Length or Transfer-Encoding"
            return _make_refusal(400, "BAD_VALUE", what, {"Connection": "close"})
        if _is_foreign(headers, scope):
            what = "the service answers requests of its own page only, not those of other sites in a browser"
            return _make_refusal(403, "FORBIDDEN_ORIGIN", what)
        if not self._known:
            scope.setdefault("state", {})["grant"] = EVERYBODY
            if is_loopback(read_host(headers.get("host", ""))):
                return None
            return _make_refusal(
                403, "FORBIDDEN_HOST", "a service without a token answers for localhost only"
            )
        kind, _, given = headers.get("authorization", "").partition(" ")
        grant = find_grant(self._known, given) if kind.lower() == "bearer" else None
        scope.setdefault("state", {})["grant"] = grant
        if grant or scope["path"] in PUBLIC or scope["path"].startswith(PAGE):
            return None
        what = "give the token of the service in the header 'Authorization: Bearer TOKEN'"
        return _make_refusal(401, "TOKEN", what, {"WWW-Authenticate": "Bearer"})


def _is_foreign(headers: Headers, scope: Any) -> bool:
    """Whether a page of another site sends a request. It may have a link to the page of the service."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in OWN_SITES:
        is_link = scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate"
        return not is_link
    own = headers.get("host", "").lower()
    return origin is not None and origin.partition("://")[2].lower() != own


class _Exchange:
    """A request whose body is bounded, and its answer, which has ``ANSWER_HEADERS``.

    If a body is too large before the application has begun to answer, it looks to the application as if the
    client had left, and the client gets a refusal. Later, nobody needs the body.
    """

    def __init__(self, receive: Any, send: Any) -> None:
        self._receive, self._send = receive, send
        self._n_bytes = 0
        self._has_begun = False

    @property
    def _is_refused(self) -> bool:
        return self._n_bytes > LARGEST_BODY and not self._has_begun

    async def receive(self) -> Any:
        """Receive a part of the body."""
        part = await self._receive()
        self._n_bytes += len(part.get("body", b""))
        if self._n_bytes <= LARGEST_BODY or part["type"] == "http.disconnect":
            return part
        return {**part, "body": b""} if self._has_begun else {"type": "http.disconnect"}

    async def send(self, part: Any) -> None:
        """Send a part of the answer."""
        if self._is_refused:
            return
        if part["type"] == "http.response.start":
            self._has_begun = True
            headers = MutableHeaders(scope=part)
            for name, value in ANSWER_HEADERS.items():
                headers.setdefault(name, value)
        await self._send(part)

    async def end(self, scope: Any) -> None:
        """Send the refusal of a body that was too large."""
        if self._is_refused:
            what = f"a body may have {LARGEST_BODY:,} bytes, and this one has more"
            refusal = _make_refusal(413, "BAD_VALUE", what, {"Connection": "close"})
            self._n_bytes = 0
            await refusal(scope, self._receive, self.send)


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


def _make_refusal(
    status: int, condition: str, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"condition": condition, "message": message}, status, headers)
