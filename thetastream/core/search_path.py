"""Where the Python processes that we start search for modules.

Python puts the current folder in front of ``sys.path`` if a process starts by ``python -m``. Where other
users may write to this folder, as in ``/tmp``, a file ``pandas.py`` of theirs would run in such a process.
Therefore our processes start with ``PYTHONSAFEPATH``, and get the folders in which this process searches:

    folder on ``sys.path``                            in a process that we start
    of Python itself, and of installed packages       as Python finds it
    of the program, of ``PYTHONPATH``, added by code  in front of installed packages
    "", the current folder of an interactive session  behind installed packages, or not at all

This file is imported before any other module of the package. It imports only modules of Python.
"""

import grp
import os
import pwd
import stat
import sys
import sysconfig

SAFE_PATH = "PYTHONSAFEPATH"
"""The environment variable that keeps the current folder out of ``sys.path``."""
LAST_FOLDER = "THETASTREAM_LAST_FOLDER"
"""The environment variable with the folder that Spark's workers search last."""


def forget_current_folder() -> None:
    """Remove the current folder from ``sys.path`` if this process starts by ``python -m thetastream...``.

    While Python looks for the module that ``-m`` names, ``sys.argv`` begins with ``-m``. So nothing changes
    for a program that imports this package.
    """
    if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
        del sys.path[0]


def list_program_folders() -> list[str]:
    """List the folders of ``sys.path`` that belong to this program and not to Python.

    The folder of this package is always among them, unless it is installed.
    """
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    folders = [os.path.abspath(entry) for entry in (*sys.path, package) if entry and os.path.isdir(entry)]
    own = [folder for folder in folders if not _lies_in(folder, installed | {_find_user_packages()})]
    return list(dict.fromkeys(own))


def find_current_folder() -> str | None:
    """Return the current folder if this process searches it by the name ``""``, and only its user can write.

    Behind installed packages, a file of another user replaces none of them. But it could be taken for an
    optional package that is not installed.
    """
    folder = os.getcwd()
    return folder if "" in sys.path and _is_own(folder) else None


def write_search_path(folders: list[str]) -> str:
    """Write folders as the value of ``PYTHONPATH``. A folder with a colon in its path cannot be written."""
    return os.pathsep.join(folder for folder in folders if os.pathsep not in folder)


def _is_own(folder: str) -> bool:
    """Whether only this user, root and the user's own group can write to a folder."""
    known = os.stat(folder)
    if known.st_uid not in (os.geteuid(), 0) or known.st_mode & stat.S_IWOTH:
        return False
    if not known.st_mode & stat.S_IWGRP:
        return True
    try:
        # Systems on which new folders are writable for the group give each user a group of the same name.
        return grp.getgrgid(known.st_gid).gr_name == pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False


def _lies_in(folder: str, parents: set[str]) -> bool:
    return any(folder == parent or folder.startswith(parent + os.sep) for parent in parents if parent)


def _find_user_packages() -> str:
    """Return the folder into which ``pip install --user`` installs, also if Python did not load ``site``."""
    site = sys.modules.get("site")
    return "" if site is None else str(site.getusersitepackages())


forget_current_folder()
