"""Where a program listens: its port, the names of hosts in requests, and the names of clients.

The port is opened first, so that a port that is taken is known before anything starts.
"""

import re
import socket
from ipaddress import IPv4Address, ip_address, ip_network

from thetastream.core.errors import QueryError


def open_port(host: str, port: int) -> socket.socket:
    """Listen at a port; 0 stands for any free one.

    Raises
    ------
    QueryError
        SERVICE_PORT if the port is taken, is no port, or the host is not of this machine.

    Examples
    --------
    >>> with open_port("127.0.0.1", 0) as taken:
    ...     open_port("127.0.0.1", taken.getsockname()[1])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    thetastream.core.errors.QueryError: [SERVICE_PORT] the service cannot listen at 127.0.0.1:...
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        # Python adds the address to the words of the system.
        why = str(error).partition(" (while attempting")[0].rstrip(".")
        what = f"the service cannot listen at {host}:{port}: {why}"
        hint = "give a free port from 1 to 65535, at a host of this machine"
        raise QueryError("SERVICE_PORT", f"{what}; {hint}") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def name_client(host: str) -> str:
    """Name the client of an address. All addresses of an IPv6 network of 64 bits are one client.

    A proxy may name a client by a text that is no address.

    >>> name_client("127.0.0.1"), name_client("2001:db8::1:2"), name_client("::ffff:10.0.0.5")
    ('127.0.0.1', '2001:db8::/64', '10.0.0.5')
    """
    host = host.partition("%")[0]
    try:
        found = ip_address(host)
    except ValueError:
        return host
    if isinstance(found, IPv4Address) or found.is_loopback:
        return host
    return str(found.ipv4_mapped or ip_network((int(found) >> 64 << 64, 64)))


def read_host(header: str) -> str:
    """Read the host from the header ``Host``, without its port; an empty text if it is none.

    >>> read_host("[::1]:8080"), read_host("localhost"), read_host("[::1]evil.com")
    ('::1', 'localhost', '')
    """
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@/]+))(?::\d{1,5})?", header)
    return (found[1] or found[2]) if found else ""
