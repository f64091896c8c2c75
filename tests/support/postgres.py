"""A PostgreSQL server for the tests, with a data folder of its own and one socket, without a port."""

import contextlib
import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers import start_server

START_S = 60


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
    data, address = folder / "data", f"postgresql://tests@/postgres?host={folder}"
    initdb = [str(programs / "initdb"), "-D", str(data), "-U", "tests", "-A", "trust", "--no-sync"]
    subprocess.run(initdb, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)
    command = [str(programs / "postgres"), "-D", str(data), "-k", str(folder)]
    command += ["-c", "listen_addresses=", "-c", "fsync=off"]
    with (folder / "log").open("ab") as log:
        # SIGQUIT ends PostgreSQL at once, and it removes its shared memory.
        server = start_server(command, signal.SIGQUIT, user=user, cwd=folder, stdout=log, stderr=log)
    try:
        _wait_for_answer(server, address, folder / "log")
        yield address
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait()
        shutil.rmtree(folder)


def _wait_for_answer(server: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    import psycopg

    end = time.monotonic() + START_S
    while True:
        try:
            psycopg.connect(address).close()
            return
        except psycopg.OperationalError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
