"""Names of hosts in requests: which one a request names, and whether it is this machine."""

import re
from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def read_host(header: str) -> str:
    """Read the host from the header ``Host``, without its port; an empty text if it is none.

    >>> read_host("[::1]:8080"), read_host("localhost"), read_host("[::1]evil.com")
    ('::1', 'localhost', '')
    """
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@/]+))(?::\d{1,5})?", header)
    return (found[1] or found[2]) if found else ""
