"""A sandbox of the operating system for a program that runs statements of clients.

    python -P sandbox.py FOLDERS MODULE ARGUMENT...

FOLDERS is a JSON list of the folders that the program reads besides Python and its packages, or null if it
needs the network. The function ``run`` of the module gets the arguments, under what the system has:

    Landlock    files that it reads, no file that it writes, no TCP, no signals to other processes
    seccomp     no socket, no new process, no other program, no access to other processes
    rlimit      no core dump, which would have the rows of a statement

Landlock binds threads that start later, and packages start threads when they are loaded. So this file is a
program of its own, which loads only modules of Python. Nothing takes a restriction back. If the system has a
restriction but refuses to set it, the program does not start.
"""

import ctypes
import importlib
import json
import os
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

_LIBC = ctypes.CDLL(None, use_errno=True)

# Landlock: its system calls have the same numbers on all machines.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_FILE_RIGHTS = ((1, 13), (2, 14), (3, 15), (5, 16))
"""From which version of Landlock on it knows how many rights of files; they are the lowest bits."""
_NET_RIGHTS, _NET_SINCE = 0b11, 4
_SCOPES, _SCOPES_SINCE = 0b11, 6

# prctl and seccomp
_NO_NEW_PRIVILEGES, _GET_SECCOMP, _SET_SECCOMP, _FILTER = 38, 21, 22, 2
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _IF_EQUAL, _IF_GREATER, _IF_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_CLONE_THREAD, _X32 = 0x10000, 0x40000000
_EPERM, _ENOSYS = 1, 38
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The number of a machine in a filter of system calls, and the column of its numbers below."""
_CLONE, _CLONE3, _PRLIMIT = (56, 220), (435, 435), (302, 261)
_NETWORK = {"socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201)}
_OTHERS = {
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "kill": (62, 129),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "io_uring_setup": (425, 425), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "open_by_handle_at": (304, 265), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "shmget": (29, 194),
    "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
}  # fmt: skip
"""System calls that are refused, and their numbers; None on a machine that does not have them."""

_SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/localtime", "/etc/timezone",
    "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/proc/self", "/proc/meminfo", "/proc/cpuinfo",
    "/proc/stat", "/proc/sys/vm/overcommit_memory", "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm",
)  # fmt: skip
"""What Python, its packages and the C library read of a system. ``/proc/self`` is this process."""


class Protections(NamedTuple):
    """What the system of this process has against a program that tries to break out."""

    landlock: int
    """The version of Landlock; 0 if the kernel has none, or is not allowed to use it."""
    has_seccomp: bool
    is_linux: bool = True

    def describe(self, folders: Sequence[str] | None) -> str:
        """Say what limits a program with these folders, and what does not.

        >>> Protections(7, True).describe(["/out/pairs"])
        'files: Landlock; network: Landlock, seccomp; processes: seccomp; memory: rlimit'
        >>> Protections(0, False, is_linux=False).describe(["/out/pairs"])
        'files: NOT LIMITED; network: NOT LIMITED; processes: NOT LIMITED; memory: NOT LIMITED'
        """
        is_local = folders is not None
        landlock = (
            "Landlock" if is_local else "Landlock (writing only, because a store is not in a local folder)"
        )
        by = {
            "files": [landlock] * bool(self.landlock),
            "network": ["Landlock"] * (is_local and self.landlock >= _NET_SINCE)
            + ["seccomp"] * (is_local and self.has_seccomp),
            "processes": ["seccomp"] * self.has_seccomp,
            "memory": ["rlimit"] * self.is_linux,
        }
        return "; ".join(f"{name}: {', '.join(found) or 'NOT LIMITED'}" for name, found in by.items())


def find_protections() -> Protections:
    """Find what the system of this process has."""
    if sys.platform != "linux":
        return Protections(0, has_seccomp=False, is_linux=False)
    version = _call(_LIBC.syscall, _CREATE_RULESET, 0, 0, _VERSION)
    # A program of 32 bits has other numbers of system calls.
    is_known = platform.machine() in _MACHINES and sys.maxsize > 1 << 32
    has_seccomp = is_known and _call(_LIBC.prctl, _GET_SECCOMP, 0, 0, 0, 0) >= 0
    return Protections(max(version, 0), has_seccomp)


def enter(folders: Sequence[str] | None) -> None:
    """Restrict this process for ever, as far as its system can. It must have one thread.

    Parameters
    ----------
    folders : sequence of str or None
        The folders that the process may read besides Python and its packages. None: it may read everything
        and use the network.

    Raises
    ------
    OSError
        If the system has a restriction but refuses to set it.
    """
    if sys.platform != "linux":
        return
    import resource

    found = find_protections()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _check(_call(_LIBC.prctl, _NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    if found.landlock:
        _restrict_files(found.landlock, folders)
    if found.has_seccomp:
        _restrict_calls(platform.machine(), has_network=folders is None)


def _restrict_files(version: int, folders: Sequence[str] | None) -> None:
    """Let the process read only what it needs, and write nothing."""
    n_rights = max(n for since, n in _FILE_RIGHTS if since <= version)
    reading = _READ_FILE | _READ_DIR
    handled = (1 << n_rights) - 1
    if folders is None:
        handled &= ~reading
    net = _NET_RIGHTS if folders is not None and version >= _NET_SINCE else 0
    scopes = _SCOPES if version >= _SCOPES_SINCE else 0
    n_fields = 3 if version >= _SCOPES_SINCE else 2 if version >= _NET_SINCE else 1
    attributes = struct.pack("<QQQ", handled, net, scopes)[: 8 * n_fields]
    rules = _check(_call(_LIBC.syscall, _CREATE_RULESET, attributes, len(attributes), 0))
    _allow(rules, "/dev/null", _WRITE_FILE | (reading & handled))
    if folders is not None:
        for path in (*_SYSTEM, *folders):
            _allow(rules, path, reading)
        for path, is_whole in _list_modules():
            _allow(rules, path, reading if is_whole else _READ_DIR)
    _check(_call(_LIBC.syscall, _RESTRICT_SELF, rules, 0))
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    """Allow rights for a file, or for a folder and all that is in it. What does not exist is left out."""
    try:
        file = os.open(path, os.O_PATH)
    except OSError:
        return
    if not os.path.isdir(path):
        rights &= _READ_FILE | _WRITE_FILE
    _check(_call(_LIBC.syscall, _ADD_RULE, rules, _PATH_BENEATH, struct.pack("<Qi", rights, file), 0))
    # The kernel may forget a file of /proc that is not open, and the rule with it.
    if not path.startswith("/proc/"):
        os.close(file)


def _list_modules() -> Iterator[tuple[str, bool]]:
    """List where Python searches: each path, and whether all that is in it may be read.

    A folder of the program may also have secrets, or the token of the service. So of such a folder, only
    modules and folders with modules are read, and its names.
    """
    installed = {os.path.realpath(one) for one in (sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"))}
    for path in installed:
        yield path, True
    for entry in filter(None, map(os.path.abspath, sys.path)):
        if os.path.basename(entry) in ("site-packages", "dist-packages") or not os.path.isdir(entry):
            yield entry, True
        elif os.path.realpath(entry) not in installed:
            yield entry, False
            yield from ((child.path, True) for child in os.scandir(entry) if _has_modules(child))


def _has_modules(entry: "os.DirEntry[str]") -> bool:
    """Whether an entry of a folder is a module, or a folder with modules or with metadata of a package."""
    suffixes = (".py", ".so", ".dist-info", ".egg-info")
    if entry.name.endswith(suffixes):
        return True
    with suppress(OSError):
        return entry.name.isidentifier() and any(name.endswith(suffixes[:2]) for name in os.listdir(entry))
    return False


def _restrict_calls(machine: str, has_network: bool) -> None:
    """Refuse system calls with EPERM.

    ``clone`` may begin threads only, and ``prlimit64`` may change limits of this process only.
    """
    audit, column = _MACHINES[machine]
    refused = [numbers[column] for numbers in (_OTHERS if has_network else _OTHERS | _NETWORK).values()]
    checks = [(_IF_EQUAL, number) for number in refused if number is not None]
    if machine == "x86_64":
        # Calls of its 32-bit form have other numbers.
        checks.insert(0, (_IF_GREATER, _X32))
    # Each step has a kind, the numbers of steps that are passed if it holds and if not, and a value.
    steps = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_IF_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        # The C library then uses ``clone``, whose flags can be read here.
        (_IF_EQUAL, 0, 1, _CLONE3[column]),
        (_RETURN, 0, 0, _REFUSE | _ENOSYS),
        *((kind, len(checks) - n + 6, 0, number) for n, (kind, number) in enumerate(checks)),
        (_IF_EQUAL, 0, 2, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_IF_BITS, 3, 4, _CLONE_THREAD),
        (_IF_EQUAL, 0, 2, _PRLIMIT[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_IF_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE | _EPERM),
    ]
    program = b"".join(struct.pack("<HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(steps), ctypes.addressof(buffer))
    _check(_call(_LIBC.prctl, _SET_SECCOMP, _FILTER, described, 0, 0))


def _call(function: Any, number: int, *arguments: int | bytes) -> int:
    """Call a function of the C library with arguments of the size of a register."""
    sized = [one if isinstance(one, bytes) else ctypes.c_long(one) for one in arguments]
    return int(function(ctypes.c_long(number), *sized))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the sandbox of statements cannot be made: {os.strerror(number)}")
    return result


def main(arguments: Sequence[str]) -> None:
    """Enter the sandbox, and run a module in this process."""
    folders, module, *rest = arguments
    enter(json.loads(folders))
    importlib.import_module(module).run(rest)


if __name__ == "__main__":
    main(sys.argv[1:])
