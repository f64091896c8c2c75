"""Hosts with addresses of their own on this machine: network namespaces of Linux behind one bridge.

    namespace 0: 10.231.0.2 --- link 0 --+
                                         +-- bridge: 10.231.0.1, this machine
    namespace 1: 10.231.0.3 --- link 1 --+

A link can be cut: packets are lost until it is mended, as with a cable that is pulled. Only root may do this.
"""

import contextlib
import os
import subprocess

_PREFIX = "10.231.0."


class Network:
    """A network of ``hosts`` namespaces.

    Raises
    ------
    RuntimeError
        If the machine lets nobody make namespaces here.
    """

    gateway = f"{_PREFIX}1"
    """The address of this machine in the network."""

    def __init__(self, hosts: int) -> None:
        self._name = f"th{os.getpid() % 10_000}"
        self._hosts = range(hosts)
        try:
            _run("link", "add", self._name, "type", "bridge")
            _run("address", "add", f"{self.gateway}/24", "dev", self._name)
            _run("link", "set", self._name, "up")
            for host in self._hosts:
                self._add(host)
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise RuntimeError(f"network namespaces need root and the command ip: {error}") from error

    def address(self, host: int) -> str:
        """Return the address of a host."""
        return f"{_PREFIX}{2 + host}"

    def enter(self, host: int) -> list[str]:
        """Return the words that run a command on a host if they stand before it."""
        return ["ip", "netns", "exec", self._namespace(host)]

    def cut(self, host: int) -> None:
        """Cut the link of a host."""
        _run("link", "set", self._link(host), "down")

    def mend(self, host: int) -> None:
        """Mend the link of a host."""
        _run("link", "set", self._link(host), "up")

    def close(self) -> None:
        """Remove the network."""
        for host in self._hosts:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _run("netns", "delete", self._namespace(host))
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            _run("link", "delete", self._name)

    def _add(self, host: int) -> None:
        namespace, link = self._namespace(host), self._link(host)
        _run("netns", "add", namespace)
        _run("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _run("link", "set", link, "master", self._name, "up")
        _run("-n", namespace, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("-n", namespace, "link", "set", device, "up")

    def _namespace(self, host: int) -> str:
        return f"{self._name}-{host}"

    def _link(self, host: int) -> str:
        return f"{self._name}l{host}"


def _run(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
