"""Java programs for tests: their jars, which Maven copies with the user's own settings, and free ports."""

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>thetastream</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def fetch_jars(coordinates: Sequence[str], folder: Path) -> Path:
    """Copy artifacts (``group:artifact:version``) and all that they need into ``folder``, once, by Maven.

    Maven works with the user's own settings. Raises CalledProcessError with Maven's words in ``output`` if an
    artifact is not to be had.
    """
    folder = folder.absolute()  # Maven runs in the folder.
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        dependencies = "".join(_DEPENDENCY.format(*each.split(":")) for each in coordinates)
        (folder / "pom.xml").write_text(_POM.format(dependencies=dependencies))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run(
            [*command, f"-DoutputDirectory={folder}"],
            cwd=folder,
            check=True,
            timeout=900,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        (folder / "complete").touch()
    return folder


def find_free_port() -> int:
    """Find a port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
