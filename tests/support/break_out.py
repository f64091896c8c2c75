"""What a program tries that has taken over the process of a statement.

Each attempt is a function without results. ``try_all`` calls attempts by their names, and says for each one
how the system has answered: ``"done"``, or the name of the error. It runs in the process of a statement in
place of a function that opens rows.
"""

import ctypes
import errno
import fcntl
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pyarrow as pa

DONE = "done"
_IS_X86 = os.uname().machine == "x86_64"


def try_all(attempts: list[tuple[str, str]]) -> pa.Table:
    """Make attempts, each a name and an argument; return a table of their outcomes."""
    return pa.table({"outcome": [try_one(*attempt) for attempt in attempts]})


def try_one(name: str, argument: str) -> str:
    """Make one attempt."""
    try:
        ATTEMPTS[name](argument)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return DONE


def read_in_a_thread(path: str) -> None:
    """Read a file in a thread that starts now."""
    errors: list[OSError] = []

    def read() -> None:
        try:
            Path(path).read_bytes()
        except OSError as error:
            errors.append(error)

    thread = Thread(target=read)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def connect(address: str, kind: socket.SocketKind) -> None:
    host, _, port = address.partition(":")
    with socket.socket(socket.AF_INET, kind) as client:
        client.connect((host, int(port)))


def connect_by_path(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def attach(process: str) -> None:
    """Stop another process as a debugger does."""
    _call(101 if _IS_X86 else 117, 16, int(process), 0, 0)


def limit(process: str) -> None:
    """Change a limit of another process."""
    resource.prlimit(int(process), resource.RLIMIT_CORE, resource.prlimit(int(process), resource.RLIMIT_CORE))


def read_memory(process: str) -> None:
    """Look into the memory of another process."""
    with open(f"/proc/{process}/mem", "rb") as file:
        file.seek(0)


def run_from_memory(_: str) -> None:
    """Run a program that no file of a folder has."""
    file = os.memfd_create("program")
    os.write(file, Path(sys.executable).read_bytes())
    os.execve(file, ["python", "-c", "pass"], {})


def open_ring(_: str) -> None:
    """Open a queue of system calls, which a filter of calls does not see."""
    _call(425, 1, ctypes.addressof(ctypes.create_string_buffer(256)))


def signal_a_thread(process: str) -> None:
    """Ask whether the first thread of another process may be ended."""
    _call(234 if _IS_X86 else 131, int(process), int(process), 0)


def signal_by_a_pipe(process: str) -> None:
    """Let the kernel signal another process when a pipe can be read."""
    for end in os.pipe():
        fcntl.fcntl(end, fcntl.F_SETOWN, int(process))
        os.close(end)


def type_into_a_terminal(_: str) -> None:
    """Type a letter into the terminal of the service, whose error output this process has."""
    fcntl.ioctl(2, 0x5412, b"x")


def send_by_a_pair(path: str) -> None:
    """Send a message to a socket of another program over a socket that is connected already."""
    for one in (pair := socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)):
        one.sendto(b"x", path)
    for one in pair:
        one.close()


def lower_priority(process: str) -> None:
    """Set the priority of another process."""
    os.setpriority(os.PRIO_PROCESS, int(process), os.getpriority(os.PRIO_PROCESS, int(process)))


def _call(number: int, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), "refused")


ATTEMPTS: dict[str, Callable[[str], object]] = {
    "read a file": lambda path: Path(path).read_bytes(),
    "read a file in a thread": read_in_a_thread,
    "list a folder": os.listdir,
    "write a file": lambda path: Path(path).write_bytes(b"x"),
    "write nothing": lambda _: Path(os.devnull).write_bytes(b"x"),
    "remove a file": os.unlink,
    "make a folder": os.mkdir,
    "rename a file": lambda path: os.rename(path, f"{path}2"),
    "connect": lambda address: connect(address, socket.SOCK_STREAM),
    "connect by UDP": lambda address: connect(address, socket.SOCK_DGRAM),
    "connect by a path": connect_by_path,
    "end a process": lambda process: os.kill(int(process), 0),
    "attach to a process": attach,
    "read memory": read_memory,
    "limit a process": limit,
    "fork": lambda _: os.fork() or os._exit(0),
    "start a program": lambda path: subprocess.run([path], check=True),
    "become a program": lambda path: os.execv(path, [path]),
    "run from memory": run_from_memory,
    "open a ring": open_ring,
    "signal a thread": signal_a_thread,
    "signal by a pipe": signal_by_a_pipe,
    "type into a terminal": type_into_a_terminal,
    "send by a pair": send_by_a_pair,
    "lower a priority": lower_priority,
    "change a mode": lambda path: os.chmod(path, os.stat(path).st_mode),
    "change the mode of an open file": lambda path: os.fchmod(os.open(path, os.O_RDONLY), 0o666),
    "change an owner": lambda path: os.chown(path, -1, os.getgid()),
    "change times": lambda path: os.utime(path, ns=(0, os.stat(path).st_mtime_ns)),
    "set an attribute": lambda path: os.setxattr(path, "user.x", b"x"),
    "cut a file": lambda path: os.truncate(path, os.path.getsize(path)),
    "watch a folder": lambda _: _call(294 if _IS_X86 else 26, 0),
    "open a mount": lambda _: _call(428, -100, 0, 1),
    "remove shared memory": lambda _: _call(31 if _IS_X86 else 195, -1, 0, 0),
}
