"""Hides users, passwords and options in addresses, also in those that cannot be read."""

import re

_PATHS = ("file", "hdfs", "viewfs", "http", "https")
"""Schemes whose addresses may have a port and then a sign @ in a path."""
_FIRST = re.compile(r"[^/]*@")
"""User and password before the first slash. A password may have the sign @ too."""
_WITH_SLASH = re.compile(r"[^/@:]*:[^@]*@")
"""User and a password that has a slash."""
_PORT = re.compile(r"[^/@:]*:\d+/")
_IN_TEXT = re.compile(
    r"[A-Za-z][\w+.-]*://(?:[^\s'\"@/:]*:(?!\d+/)[^'\"@]*@)?[^\s'\"]*"
    # A slash is lost where the last part of an address is split off.
    r"|(?P<scheme>[A-Za-z][\w+.-]+:/)[^\s'\"/@:]*:[^\s'\"@]*@"
    r"|\b(?P<name>(?:ssl|key)?password|secret_key)=(?!\s)(?:\\?'[^']*'|[^\s&'\"]+)",
    re.IGNORECASE,
)
"""Addresses, and passwords in a list of key=value, as PostgreSQL reads it."""


def hide_secrets(root: str) -> str:
    """Return the URI of a folder without user, password and options; a path remains as it is.

    >>> hide_secrets("s3://key:secret@bucket/mail?region=x"), hide_secrets("/mail?")
    ('s3://bucket/mail', '/mail?')

    A password that should be encoded, but is not, may contain a slash or the sign @.

    >>> hide_secrets("postgresql://user:1/b@host/db"), hide_secrets("postgresql://user:a@b@host/db")
    ('postgresql://host/db', 'postgresql://host/db')
    >>> hide_secrets("hdfs://host:8020/a@b")
    'hdfs://host:8020/a@b'
    """
    scheme, mark, rest = root.partition("://")
    if not mark:
        return root
    is_path = scheme.lower().rpartition(":")[2] in _PATHS and _PORT.match(rest)
    found = _FIRST.match(rest) or (None if is_path else _WITH_SLASH.match(rest))
    if found is not None:
        rest = rest[found.end() :]
        if found.re is _WITH_SLASH:
            rest = _FIRST.sub("", rest, count=1)
    return f"{scheme}://{rest}".partition("?")[0]


def hide_all_secrets(text: str) -> str:
    """Hide the secrets of all addresses in a text, as ``hide_secrets`` does.

    >>> hide_all_secrets("not 's3://key:secret@bucket/x?a=b', nor host=h password=secret")
    "not 's3://bucket/x', nor host=h password=***"
    """

    def hide(found: re.Match[str]) -> str:
        if found["scheme"] is not None:
            return found["scheme"]
        return hide_secrets(found[0]) if found["name"] is None else f"{found['name']}=***"

    return _IN_TEXT.sub(hide, text)
