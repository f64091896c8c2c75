"""The process of a statement is in a sandbox of the system: what it does not need, the system refuses."""

import os
import re
import shutil
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.break_out import DONE, try_all, try_one
from tests.support.service import make_pairs
from thetastream.service import sandbox
from thetastream.service.limits import Limits
from thetastream.service.questions import list_folders
from thetastream.service.sandbox import Protections
from thetastream.service.statement_pool import StatementPool
from thetastream.stores import DeltaStore, ParquetStore, PostgresStore

FOUND = sandbox.find_protections()
MODULES, NO_MODULES = ("own.py", "package/__init__.py"), ("data/secret", ".env")
needs_landlock = pytest.mark.skipif(FOUND.landlock < 4, reason="the kernel has no Landlock with rules of TCP")
needs_seccomp = pytest.mark.skipif(not FOUND.has_seccomp, reason="the system has no seccomp")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, and with a token beside it."""
    folder = tmp_path_factory.mktemp("service")
    make_pairs(folder)
    (folder / "token").write_text("hidden")
    return folder


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a program, which has modules, data, and a secret."""
    program = tmp_path_factory.mktemp("program")
    for name in (*MODULES, *NO_MODULES):
        path = program / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("VALUE = 1")
    return program


@pytest.fixture(scope="module")
def pool(folder: Path, program: Path) -> StatementPool:
    """A pool of one process, which searches the folder of the program for modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(program))
        pool = StatementPool(Limits(questions=1), folders=[str(folder / "pairs")])
        try_inside(pool, [])
    return pool


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """The address of a server of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def try_inside(pool: StatementPool, attempts: list[tuple[str, str]]) -> list[str]:
    found: list[str] = pool.ask(partial(try_all, attempts), "FROM results")["outcome"].to_pylist()
    return found


@needs_landlock
@needs_seccomp
def test_the_system_refuses_files_outside_of_stores_and_every_socket(
    pool: StatementPool, folder: Path, server: str
) -> None:
    store = ParquetStore(str(folder / "pairs"))
    part, me = store.files()[0], str(os.getpid())
    with socket.socket(socket.AF_UNIX) as by_path, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as taking:
        by_path.bind(str(folder / "by-path"))
        by_path.listen()
        taking.bind(str(folder / "taking"))
        harmless = [
            ("read a file", str(folder / "token")),
            ("read a file in a thread", str(folder / "token")),
            ("read a file", f"/proc/{me}/environ"),
            ("read a file", "/etc/passwd"),
            ("read a file", "/proc/self/root/etc/passwd"),
            ("list a folder", str(folder)),
            ("connect", server),
            ("connect by UDP", server),
            ("connect by a path", str(folder / "by-path")),
            ("end a process", me),
            ("read memory", me),
            ("limit a process", me),
            ("start a program", "/bin/true"),
            ("signal a thread", me),
            ("signal by a pipe", me),
            ("send by a pair", str(folder / "taking")),
            ("lower a priority", me),
            ("change a mode", str(folder / "token")),
            ("change an owner", str(folder / "token")),
            ("change times", str(folder / "token")),
            ("cut a file", str(folder / "token")),
            ("watch a folder", ""),
        ]
        harmful = [
            ("change a mode", part),
            ("change the mode of an open file", part),
            ("set an attribute", part),
            ("open a mount", ""),
            ("remove shared memory", ""),
            ("type into a terminal", ""),
            ("write a file", str(folder / "new")),
            ("write a file", part),
            ("write a file", "new"),
            ("remove a file", part),
            ("make a folder", str(folder / "pairs" / "new")),
            ("rename a file", part),
            ("attach to a process", me),
            ("fork", ""),
            ("become a program", "/bin/true"),
            ("run from memory", ""),
            ("open a ring", ""),
        ]
        needed = [("read a file", part), ("list a folder", str(folder / "pairs")), ("write nothing", "")]
        attempts = harmless + harmful
        outcomes = try_inside(pool, attempts + needed)
        wrong = [one for one in zip(attempts, outcomes, strict=False) if one[1] not in ("EACCES", "EPERM")]
        assert not wrong
        assert outcomes[len(attempts) :] == [DONE] * len(needed)
        # This process is in no sandbox.
        assert [try_one(*one) for one in harmless] == [DONE] * len(harmless)
    assert pool.ask(store.open, "SELECT count(*) AS n FROM results")["n"].to_pylist() == [3]


@needs_landlock
@needs_seccomp
def test_a_service_of_a_store_elsewhere_may_read_and_connect_and_nothing_else(
    folder: Path, server: str
) -> None:
    # The store may need keys of the user, and an address.
    pool = StatementPool(Limits(questions=1), folders=None)
    allowed = [("read a file", str(folder / "token")), ("connect", server)]
    refused = [("write a file", str(folder / "new")), ("fork", ""), ("end a process", str(os.getpid()))]
    outcomes = try_inside(pool, allowed + refused)
    assert outcomes[:2] == [DONE, DONE]
    assert not set(outcomes[2:]) - {"EACCES", "EPERM"}


@needs_landlock
def test_a_folder_of_the_program_shows_its_modules_and_nothing_else(
    pool: StatementPool, program: Path
) -> None:
    outcomes = try_inside(pool, [("read a file", str(program / name)) for name in (*MODULES, *NO_MODULES)])
    assert outcomes == [DONE] * len(MODULES) + ["EACCES"] * len(NO_MODULES)


def test_a_store_that_was_replaced_is_read_by_a_new_process(pool: StatementPool, folder: Path) -> None:
    store, sql = ParquetStore(str(folder / "pairs")), "SELECT count(*) AS n FROM results"
    assert pool.ask(store.open, sql)["n"].to_pylist() == [3]
    shutil.copytree(store.path, folder / "copy")
    shutil.rmtree(store.path)
    (folder / "copy").rename(store.path)
    assert pool.ask(store.open, sql)["n"].to_pylist() == [3]


def test_a_service_reads_the_folders_of_its_stores_unless_one_is_elsewhere(tmp_path: Path) -> None:
    local = {"a": ParquetStore(str(tmp_path)), "b": DeltaStore(f"file://{tmp_path}/b")}
    assert list_folders(local) == [f"{tmp_path}/", f"{tmp_path}/b/"]
    assert list_folders({}) == []
    for elsewhere in (ParquetStore("s3://bucket/pairs"), PostgresStore("postgresql:///results", "pairs")):
        assert list_folders({**local, "c": elsewhere}) is None


@pytest.mark.parametrize(
    ("found", "folders", "expected"),
    [
        (Protections(7, True), [], "files: Landlock; network: Landlock, seccomp; processes: seccomp"),
        (Protections(3, True), [], "files: Landlock; network: seccomp; processes: seccomp"),
        (Protections(0, True), [], "files: NOT LIMITED; network: seccomp; processes: seccomp"),
        (Protections(7, False), [], "files: Landlock; network: Landlock; processes: NOT LIMITED"),
        (Protections(7, True), None, "files: Landlock .writing only, .*; network: NOT LIMITED; processes: s"),
    ],
)
def test_what_limits_statements_is_said(found: Protections, folders: list[str] | None, expected: str) -> None:
    assert re.match(expected, found.describe(folders))
