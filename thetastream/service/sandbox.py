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
_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT = 0, 4, 16, 24
_CLONE_THREAD, _X32 = 0x10000, 0x40000000
_EPERM, _ENOSYS = 1, 38
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The number of a machine in a filter of system calls, and the column of its numbers below."""
_CLONE, _CLONE3, _PRLIMIT, _TGKILL = (56, 220), (435, 435), (302, 261), (234, 131)
_FCNTL, _IOCTL = (72, 25), (16, 29)
_OWNERS = (8, 10, 15)
"""Commands of ``fcntl`` by which the kernel signals another process: F_SETOWN, F_SETSIG, F_SETOWN_EX."""
_TERMINAL = (0x5412, 0x540E, 0x541C, 0x8901, 0x8902)
"""Requests of ``ioctl`` that type into a terminal, take it, or signal another process: TIOCSTI, TIOCSCTTY,
TIOCLINUX, FIOSETOWN, SIOCSPGRP."""
_NETWORK = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200),
    "listen": (50, 201),
}  # fmt: skip
_OTHERS = {
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "kill": (62, 129),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "io_uring_setup": (425, 425), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "unshare": (272, 97), "setns": (308, 268), "open_by_handle_at": (304, 265), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
    # The mounts and the clock of the machine.
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "swapon": (167, 224),
    "swapoff": (168, 225), "reboot": (169, 142), "sethostname": (170, 161), "setdomainname": (171, 162),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "acct": (163, 89), "iopl": (172, None), "ioperm": (173, None),
    # Shared memory, queues and semaphores, which other programs of the user have.
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semtimedop": (220, 192), "semctl": (66, 191), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
    # Rights, owners and times of files, which Landlock leaves alone; and their length, before version 3.
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "removexattrat": (466, 466), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "file_setattr": (469, 469), "truncate": (76, 45),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    # Priorities of other processes.
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "migrate_pages": (256, 238), "move_pages": (279, 239), "kcmp": (312, 272),
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

    ``clone`` may begin threads only, ``prlimit64`` may change limits of this process only, and ``tgkill`` may
    signal threads of this process only.
    """
    audit, column = _MACHINES[machine]
    refused = [numbers[column] for numbers in (_OTHERS if has_network else _OTHERS | _NETWORK).values()]
    # Each step has a kind, the numbers of steps that are passed if it holds and if not, and a value.
    steps = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_IF_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        # The C library then uses ``clone``, whose flags can be read here.
        *_decide((_IF_EQUAL, _CLONE3[column]), _ENOSYS),
    ]
    if machine == "x86_64":
        # Calls of its 32-bit form have other numbers.
        steps += _decide((_IF_GREATER, _X32))
    for number in refused:
        if number is not None:
            steps += _decide((_IF_EQUAL, number))
    steps += [
        *_look_into(_CLONE[column], _FIRST_ARGUMENT_AT, [(_IF_BITS, _CLONE_THREAD)], is_allowed=True),
        *_look_into(_PRLIMIT[column], _FIRST_ARGUMENT_AT, [(_IF_EQUAL, 0)], is_allowed=True),
        *_look_into(_TGKILL[column], _FIRST_ARGUMENT_AT, [(_IF_EQUAL, os.getpid())], is_allowed=True),
        *_look_into(_FCNTL[column], _SECOND_ARGUMENT_AT, [(_IF_EQUAL, one) for one in _OWNERS]),
        *_look_into(_IOCTL[column], _SECOND_ARGUMENT_AT, [(_IF_EQUAL, one) for one in _TERMINAL]),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = b"".join(struct.pack("<HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(steps), ctypes.addressof(buffer))
    _check(_call(_LIBC.prctl, _SET_SECCOMP, _FILTER, described, 0, 0))


def _decide(test: tuple[int, int], error: int = _EPERM) -> list[tuple[int, int, int, int]]:
    """Write steps that refuse a call whose loaded value passes a test, and let others pass on."""
    kind, value = test
    return [(kind, 0, 1, value), (_RETURN, 0, 0, _REFUSE | error)]


def _look_into(
    number: int, place: int, tests: Sequence[tuple[int, int]], *, is_allowed: bool = False
) -> list[tuple[int, int, int, int]]:
    """Write steps that decide about one call by the lower half of an argument.

    Parameters
    ----------
    number : int
        The number of the call. Others pass on.
    place : int
        Where the argument is.
    tests : sequence of (kind, value)
    is_allowed : bool
        Whether a call that passes a test is allowed. Otherwise it is refused, and the others are allowed.
    """
    passed, failed = (_ALLOW, _REFUSE | _EPERM) if is_allowed else (_REFUSE | _EPERM, _ALLOW)
    n = len(tests)
    return [
        (_IF_EQUAL, 0, n + 3, number),
        (_LOAD, 0, 0, place),
        *((kind, n - at, 0, value) for at, (kind, value) in enumerate(tests)),
        (_RETURN, 0, 0, failed),
        (_RETURN, 0, 0, passed),
    ]


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
