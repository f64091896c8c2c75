"""The service of ``thetastream serve``: it answers questions to stores of results over HTTP.

A service reads committed results, and writes nothing but requests to change running queries. So several
services may serve one store. When a service restarts, its subscribers reconnect and continue after the last
snapshot that they have seen.
"""

from thetastream.service.access import Grant, read_tokens
from thetastream.service.app import build_app
from thetastream.service.limits import Limits
from thetastream.service.server import Server

__all__ = ["Grant", "Limits", "Server", "build_app", "read_tokens"]
