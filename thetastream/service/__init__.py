"""``thetastream serve``: stores of results over HTTP.

It reads committed results and keeps nothing. So any number of services may serve one store, and one that
restarts continues where its subscribers were.
"""

from thetastream.service.app import build_app
from thetastream.service.limits import Limits

__all__ = ["Limits", "build_app"]
