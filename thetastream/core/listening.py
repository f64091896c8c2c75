"""Opens the port at which a program listens, so that a port that is taken is known before anything starts."""

import socket

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
