"""Names what a Python worker lacks, and what to change.

    the worker                                           what to change
    lacks a package, or has another version of Python    PYSPARK_PYTHON
    has got thetastream as a wheel                       the end of the file's name, to .zip
    has thetastream from an artifact of Spark Connect    install it, because queries of streams do not get it
    lacks a module of the user                           install it, or send it

Spark puts zip files on the path of its workers, but no wheels.
"""

import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

from thetastream.core.errors import SessionError

OURS = "thetastream"
NEEDED = ("pyarrow", "pandas", "numpy", "numba", OURS)
"""Packages that a worker imports."""
VARIABLE = "PYSPARK_PYTHON"
_SET_PYTHON = (
    f"set {VARIABLE}={sys.executable}, or on a cluster a Python of every host, before the session starts"
)
_ARTIFACTS = "Spark Connect does not hand artifacts to streaming queries"
_TELLING = ("ModuleNotFoundError", "PYTHON_VERSION_MISMATCH", "Cannot run program", "No such file")
_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_IN_WORKER = re.compile(r"[Pp]ython worker\b|PYTHON_DATA_SOURCE_ERROR")
"""How Spark begins an error of a Python worker, and of a process that plans a data source."""


class WorkerPackages(NamedTuple):
    """What a worker has found.

    Attributes
    ----------
    missing : sequence of str
        The needed packages that it has not found.
    origin : str, optional
        The file of the package thetastream, such as ``/tmp/userFiles-1/t.zip/thetastream/__init__.py``.
    folder : str
        Where Spark puts the files that are sent to workers. Each session of Spark Connect has a folder.
    files : sequence of str
        The names of the files in this folder.
    """

    missing: Sequence[str]
    origin: str | None
    folder: str
    files: Sequence[str]

    def find_fault(self, is_connect: bool) -> SessionError | None:
        """Return why joins fail on this worker; None if they do not.

        >>> found = WorkerPackages(["thetastream"], None, "/tmp/files", ["thetastream-0.1-py3-none-any.whl"])
        >>> str(found.find_fault(is_connect=False)).partition("; ")[2]
        'rename thetastream-0.1-py3-none-any.whl to thetastream.zip, because Spark does not search wheels'
        """
        wheels = [name for name in self.files if name.startswith(f"{OURS}-") and name.endswith(".whl")]
        if OURS in self.missing and wheels:
            hint = f"rename {wheels[0]} to {OURS}.zip, because Spark does not search wheels"
            return make_error(f"they lack {', '.join(self.missing)}", hint)
        if self.missing:
            return make_error(f"they lack {', '.join(self.missing)}")
        if is_connect and self.origin is not None and self.origin.startswith(f"{self.folder}/"):
            return make_error(
                f"they have {OURS} from an artifact of the session, and {_ARTIFACTS}",
                f"install {OURS} where the workers of the server run, and do not send it",
            )
        return None


def make_error(cause: str, hint: str = _SET_PYTHON) -> SessionError:
    """Make the error of workers that cannot run joins, with what to change."""
    return SessionError(
        "WORKER_PYTHON",
        f"Spark's Python workers must run Python {sys.version_info.major}.{sys.version_info.minor}, as this "
        f"process does, with the packages {', '.join(NEEDED)}: {cause}; {hint}",
    )


def find_cause(text: str) -> str:
    """Find the line of Spark's error that names the cause; the first line if none does.

    >>> find_cause("[X] failed\\nTraceback\\nModuleNotFoundError: No module named 'pyarrow'\\n at java")
    "ModuleNotFoundError: No module named 'pyarrow'"
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [line for line in lines if any(word in line for word in _TELLING)]
    cause = (found or lines or ["a worker cannot start"])[0]
    if f"No module named '{OURS}" in cause:
        # The daemon of the workers is thetastream.spark.session.daemon. It starts before they get what the
        # session sends.
        cause += (
            "; if the session sends the package (--py-files), set spark.python.daemon.module=pyspark.daemon"
        )
    return cause


def find_missing_module(text: str) -> SessionError | None:
    r"""Find the module that a worker lacked in the text of an exception that ended a query; None if none is.

    >>> text = "An exception was thrown from the Python worker\nModuleNotFoundError: No module named 'orders'"
    >>> str(find_missing_module(text))[:73]
    "[WORKER_PYTHON] a Python worker has no module 'orders'; install it in the"
    """
    found = _MODULE.findall(text) if _IN_WORKER.search(text) else []
    if not found:
        return None
    module = found[-1]
    if module.partition(".")[0] in NEEDED:
        return make_error(
            find_cause(f"ModuleNotFoundError: No module named '{module}'"), f"{_SET_PYTHON}; {_ARTIFACTS}"
        )
    return SessionError(
        "WORKER_PYTHON",
        f"a Python worker has no module {module!r}; install it in the Python of the workers, or send it by "
        f"spark.addArtifact(path, pyfile=True); {_ARTIFACTS}",
    )
