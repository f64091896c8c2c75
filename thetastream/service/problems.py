"""What clients learn about an error, and what only the log of the service says.

An error of the files of the service names their paths, which are nobody else's business. The log has each
such error once, however many clients meet it.
"""

import logging
from collections import OrderedDict

from thetastream.core.errors import ThetastreamError

LOG = logging.getLogger("thetastream.service")
OF_FILES = ("STORE_DAMAGED", "STORE_UNREACHABLE", "NO_STORE", "NO_METRICS")
"""The conditions of errors of the files of the service."""
KEPT = 100
"""The number of errors that are known to be in the log."""
_LOGGED: OrderedDict[str, None] = OrderedDict()


def write_message(error: ThetastreamError) -> str:
    """Write the message of an error for a client, without paths of this machine."""
    if error.condition not in OF_FILES:
        return error.message
    if error.message not in _LOGGED:
        LOG.error("[%s] %s", error.condition, error.message)
    _LOGGED[error.message] = None
    _LOGGED.move_to_end(error.message)
    while len(_LOGGED) > KEPT:
        _LOGGED.popitem(last=False)
    return "the service cannot read its files or reach their place; the log of the service names them"
