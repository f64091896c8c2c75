"""A PostgreSQL server for the tests, with a data folder of its own and one socket, without a port."""

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def find_server() -> Path | None:
    """Find the folder of PostgreSQL's programs; None if it is not installed."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).parent] if on_path else []
    folders += [Path(folder) for folder in sorted(glob.glob("/usr/lib/postgresql/*/bin"))]
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@contextlib.contextmanager
def run_server() -> Iterator[str]:
    """Start a server and yield its address. It ends with the block, and its folder is removed.

    PostgreSQL refuses to run as root. Then the server runs as the user ``postgres`` or ``nobody``.
    """
    programs = find_server()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    user = None
    if os.getuid() == 0:
        names = {entry.pw_name for entry in pwd.getpwall()}
        user = "postgres" if "postgres" in names else "nobody"
        shutil.chown(folder, user)
    folder.chmod(0o755)

    def call(program: str, *arguments: str) -> None:
        command = [str(programs / program), *arguments]
        subprocess.run(command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)

    data, log = str(folder / "data"), str(folder / "log")
    options = f"-c listen_addresses='' -k {folder} -c fsync=off"
    call("initdb", "-D", data, "-U", "tests", "-A", "trust", "--no-sync")
    call("pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start")
    try:
        yield f"postgresql://tests@/postgres?host={folder}"
    finally:
        call("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)
