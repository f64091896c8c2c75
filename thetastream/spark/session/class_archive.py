"""Keeps the classes of Spark in an archive, which later JVMs map into memory instead of loading them.

A JVM that runs its first joins searches almost 300 jars for each of 20,000 classes, and reads, checks and
parses it. This is a quarter of its CPU time. Java can write the parsed classes to a file when a JVM ends, and
later JVMs with the same Java, the same class path and the same kind of heap map that file. A JVM that differs
ignores the file and loads its classes as before.

    ~/.cache/thetastream/spark-<key>/home/          links to the installed Spark; part of the class path
    ~/.cache/thetastream/spark-<key>/classes.jsa    the archive, about 200 MB
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark

from thetastream.spark.session.home import HOME, has_installed_pyspark, link_folders

QUIET = "-Xlog:cds*=off"
"""No message about an archive that does not fit, or about classes that an archive cannot contain."""


@dataclass(frozen=True)
class ClassArchive:
    """A folder with an archive, and with the home of Spark to which the archive belongs."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def file(self) -> Path:
        return self.folder / "classes.jsa"

    def write_option(self) -> str:
        """Return the options of a JVM that maps the archive."""
        return f"-XX:SharedArchiveFile={self.file} {QUIET}"

    def make(self, run_joins: Callable[[str], None]) -> bool:
        """Write the archive; return whether Java could.

        Parameters
        ----------
        run_joins : callable
            It gets options for a JVM, starts a session whose JVM has them and the home of the archive, runs
            joins, and returns when the JVM has ended.
        """
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        link_folders(Path(pyspark.__file__).parent, self.home)
        made = self.file.with_suffix(".new")
        made.unlink(missing_ok=True)
        before = os.environ.get(HOME)
        os.environ[HOME] = str(self.home)
        try:
            run_joins(f"-XX:ArchiveClassesAtExit={made} {QUIET}")
        finally:
            os.environ.pop(HOME)
            if before is not None:
                os.environ[HOME] = before
        # A JVM that cannot write an archive, such as OpenJ9, ends without one.
        if not made.exists():
            return False
        made.replace(self.file)
        return True


def locate_archive() -> ClassArchive:
    """Return the archive of the installed PySpark in the user's cache folder, whether it exists or not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    installed = f"{pyspark.__version__} {Path(pyspark.__file__).parent}"
    key = hashlib.sha256(installed.encode()).hexdigest()[:12]
    return ClassArchive(cache / "thetastream" / f"spark-{key}")


def find_archive(options: Mapping[str, object]) -> ClassArchive | None:
    """Return the archive that a local session may use, or None.

    Parameters
    ----------
    options : mapping
        The options of the builder of the session.
    """
    if HOME in os.environ or not has_installed_pyspark(options):
        return None
    archive = locate_archive()
    return archive if archive.file.exists() else None
