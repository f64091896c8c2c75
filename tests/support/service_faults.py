"""Faults that strike a service of ``thetastream serve`` while clients ask it and a query writes its store.

The rows of snapshot n are known, so every answer and every event is compared with them:

    snapshot n: ROWS rows with the ids ROWS * (n - 1), ..., ROWS * n - 1
"""

import contextlib
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from tests.support.faults import environment_of_processes, free_port, kill_group
from tests.support.service import HELD, add_epoch
from thetastream.stores import ParquetStore

ROWS = 20
ASKERS, SUBSCRIBERS = 4, 3
COMMIT_S = 0.5
PATIENCE_S = 240.0
"""The longest time after a fault until a question is answered again."""
SQL = "SELECT count(*) AS n, sum(id)::BIGINT AS total FROM results"
ALLOWED = ("STORE_QUERY", "TOO_SLOW", "TOO_MANY_QUESTIONS", "TOO_BUSY")
"""What a question may be told when its process was killed or stood still, or others wait. TOO_BUSY says that
a process was killed while it started."""


@dataclass
class Service:
    """A service that is started again when it ends, a store that grows, and what clients were told."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    newest: int = 0
    n_exact: int = 0
    wrong: list[str] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def store(self) -> ParquetStore:
        return ParquetStore(str(self.folder / "pairs"))

    def start(self) -> None:
        command = [sys.executable, "-m", "thetastream.app.cli", "serve", self.store.path]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port)],
                stdout=log,
                stderr=log,
                env=environment_of_processes(),
                start_new_session=True,
            )

    def kill(self) -> None:
        if self.process is not None:
            kill_group(self.process)

    def list_workers(self) -> list[psutil.Process]:
        """List the processes of statements."""
        assert self.process is not None
        with contextlib.suppress(psutil.Error):
            return list(psutil.Process(self.process.pid).children())
        return []

    def write(self) -> None:
        """Commit a snapshot again and again."""
        while not self.is_over.wait(COMMIT_S):
            ids = range(ROWS * self.newest, ROWS * (self.newest + 1))
            add_epoch(self.store, self.newest, *ids)
            self.newest += 1

    def ask(self, chance: random.Random) -> None:
        """Ask about the rows up to a snapshot again and again."""
        while not self.is_over.is_set():
            until = chance.randint(1, max(1, self.newest))
            with contextlib.suppress(httpx.HTTPError):
                asked = {"sql": SQL, "snapshot": until}
                answer = httpx.post(
                    f"http://127.0.0.1:{self.port}/stores/pairs/query", json=asked, timeout=60
                )
                self.judge(answer, until)
            time.sleep(0.05)

    def judge(self, answer: httpx.Response, until: int) -> None:
        """Compare an answer with the rows, or an error with those that may be."""
        n = ROWS * until
        if answer.status_code == 200 and answer.json() == [{"n": n, "total": n * (n - 1) // 2}]:
            self.n_exact += 1
        elif answer.status_code == 200 or answer.json()["condition"] not in ALLOWED:
            self.wrong.append(f"snapshot {until}: {answer.status_code} {answer.text[:200]}")

    def subscribe(self) -> None:
        """Read each snapshot once and in order, also over connections that are lost."""
        last = 0
        while not self.is_over.is_set():
            headers = {"Last-Event-ID": str(last)}
            with contextlib.suppress(httpx.HTTPError):
                address = f"http://127.0.0.1:{self.port}/stores/pairs/subscribe"
                with httpx.stream("GET", address, headers=headers, timeout=30) as events:
                    for line in events.iter_lines():
                        if line.startswith("id: "):
                            if int(line[4:]) != last + 1:
                                self.wrong.append(f"a subscriber got {line} after {last}")
                            last = int(line[4:])
                        elif line.startswith("data: ") and "results" in line:
                            rows = json.loads(line[6:])["results"]
                            if sorted(row["id"] for row in rows) != [*range(ROWS * (last - 1), ROWS * last)]:
                                self.wrong.append(f"a subscriber got other rows of snapshot {last}")
                        if self.is_over.is_set():
                            break
            time.sleep(0.1)


# Faults. Each returns whether it found something to strike.


def kill_service(service: Service, chance: random.Random) -> bool:
    """Kill the service and its processes, and start it again."""
    service.kill()
    service.start()
    return True


def kill_statement(service: Service, chance: random.Random) -> bool:
    """Kill a process of statements."""
    return _strike(service, chance, lambda one: one.kill())


def stop_statement(service: Service, chance: random.Random) -> bool:
    """Let a process of statements stand still for some seconds."""

    def stop(one: psutil.Process) -> None:
        one.suspend()
        time.sleep(chance.uniform(0.2, 3))
        one.resume()

    return _strike(service, chance, stop)


def stop_service(service: Service, chance: random.Random) -> bool:
    """Let the service stand still for some seconds."""
    assert service.process is not None
    service.process.send_signal(signal.SIGSTOP)
    time.sleep(chance.uniform(0.2, 3))
    service.process.send_signal(signal.SIGCONT)
    return True


def send_halves(service: Service, chance: random.Random) -> bool:
    """Open many connections that send a part of a request."""
    opened = []
    for _ in range(200):
        with contextlib.suppress(OSError):
            one = socket.create_connection(("127.0.0.1", service.port), timeout=1)
            one.sendall(b"POST /stores/pairs/query HTTP/1.1\r\nHost: loc")
            opened.append(one)
    time.sleep(chance.uniform(0, 1))
    for one in opened:
        one.close()
    return bool(opened)


def abandon_questions(service: Service, chance: random.Random) -> bool:
    """Ask long questions, and leave before they are answered."""
    body = json.dumps(
        {"sql": "SELECT sum(a.range * b.range) FROM range(9000000) a, range(9000000) b"}
    ).encode()
    head = "POST /stores/pairs/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    n_sent = 0
    for _ in range(30):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", service.port), 1) as one:
            one.sendall(request)
            n_sent += 1
    return bool(n_sent)


def look_after_store(service: Service, chance: random.Random) -> bool:
    """Merge files of the store, and remove what nobody needs."""
    service.store.upkeep()
    return True


def _strike(service: Service, chance: random.Random, act: Callable[[psutil.Process], None]) -> bool:
    workers = service.list_workers()
    with contextlib.suppress(psutil.Error, IndexError):
        act(chance.choice(workers))
        return True
    return False


FAULTS: dict[str, tuple[Callable[[Service, random.Random], bool], int]] = {
    "service killed": (kill_service, 2),
    "process of statements killed": (kill_statement, 6),
    "process of statements stands still": (stop_statement, 3),
    "service stands still": (stop_service, 3),
    "200 half requests": (send_halves, 3),
    "30 abandoned questions": (abandon_questions, 2),
    "files of the store merged": (look_after_store, 3),
}
"""The faults, and how often each is drawn, relative to the others."""


def run_case(seed: int, folder: Path, n_points: int = 12) -> tuple[list[tuple[str, str]], list[str]]:
    """Strike a service; return each fault and what became of the service, and what was wrong."""
    chance, service = random.Random(seed), Service(folder)
    service.store.describe(HELD)
    add_epoch(service.store, 0, *range(ROWS))
    service.newest = 1
    service.start()
    clients = [threading.Thread(target=service.write)]
    clients += [threading.Thread(target=service.ask, args=(random.Random(n),)) for n in range(ASKERS)]
    clients += [threading.Thread(target=service.subscribe) for _ in range(SUBSCRIBERS)]
    points: list[tuple[str, str]] = []
    try:
        for one in clients:
            one.start()
        wait_for_answer(service)
        while len(points) < n_points:
            time.sleep(chance.uniform(0, 1))
            name = chance.choices([*FAULTS], [weight for _, weight in FAULTS.values()])[0]
            if FAULTS[name][0](service, chance):
                points.append((name, "went on" if wait_for_answer(service) else "DEAD"))
    finally:
        service.is_over.set()
        service.kill()
        for one in clients:
            one.join(90)
    wrong = service.wrong + [f"{name}: no answer" for name, end in points if end == "DEAD"]
    return points, wrong + ([] if service.store.verify().is_intact else ["the store is damaged"])


def wait_for_answer(service: Service) -> bool:
    """Wait until some questions have had exact answers; return whether they had."""
    wanted, until = service.n_exact + 3, time.monotonic() + PATIENCE_S
    while service.n_exact < wanted and time.monotonic() < until:
        time.sleep(0.05)
    return service.n_exact >= wanted
