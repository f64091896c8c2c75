"""Servers of tests end with the process of the tests, also if that is killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import time
from tests.support.servers import start_server

print(start_server(["sleep", "600"]).pid, flush=True)
time.sleep(600)
"""
END_S = 20


def is_running(process: int) -> bool:
    """Whether a process has not ended. One that has ended is a zombie until its parent asks for it."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_a_server_ends_when_the_tests_are_killed() -> None:
    tests = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    assert tests.stdout is not None
    with tests:
        server = int(tests.stdout.readline())
        assert is_running(server)
        tests.send_signal(signal.SIGKILL)
    end = time.monotonic() + END_S
    while is_running(server) and time.monotonic() < end:
        time.sleep(0.01)
    assert not is_running(server)
