"""The command line: its exit codes, and what it prints on standard error."""

import json
import shlex
import subprocess
import sys
from importlib.metadata import version

import pytest

from thetastream.app.cli import build_parser, demo, main
from thetastream.app.demo.run import load
from thetastream.core.listening import open_port
from thetastream.core.version import VERSION


def test_version_of_a_separate_process():
    command = [sys.executable, "-m", "thetastream.app.cli", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert ended.stdout == f"thetastream {version('thetastream')}\n"


@pytest.mark.parametrize("value", ["wide", "0", "nan"])
def test_an_amount_of_a_simulation_must_be_a_positive_number(value, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", "--window-s", value])
    assert f"must be a positive number below 1e12, not {value!r}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["fly"], ["demo", "--rows", "0"], ["demo", "--rows", "few"]])
def test_what_is_not_understood_exits_with_2(arguments, capsys):
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    errors = capsys.readouterr().err
    assert code == 2
    assert "usage: thetastream" in errors
    assert ("list everything that is wrong with a job" in errors) == (not arguments)


def test_sql_refuses_without_spark_what_needs_no_spark(tmp_path, capsys):
    (tmp_path / "s.csv").write_text("id\n1\n")
    (tmp_path / "t.txt").write_text("id\n1\n")
    files = {"r": "r.csv", "s": "s.csv", "t": "t.txt"}
    sources = [f"--source={name}={tmp_path / file}" for name, file in files.items()]
    assert main(["sql", "SELECT r.id FROM r, ss, t, parquet.`x`", *sources]) == 1
    errors = capsys.readouterr().err
    for words in ("3 problems", "NO_SUCH_PATH", "UNKNOWN_FORMAT", "did you mean 's'?"):
        assert words in errors, errors


def test_demo_says_that_its_port_is_taken_before_it_starts(tmp_path, capsys):
    with open_port("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        assert main(["demo", "--out", str(tmp_path / "out"), "--serve", port]) == 1
    assert f"[SERVICE_PORT] the service cannot listen at 127.0.0.1:{port}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_demo_leaves_a_folder_of_others_alone(tmp_path, capsys):
    (tmp_path / "thesis.tex").touch()
    assert main(["demo", "--out", str(tmp_path)]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("thetastream: [FOLDER_NOT_EMPTY] --out must be a new folder, an empty folder")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


class Distribution:
    """An installation that comes from a place; None if it comes from a package index."""

    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.origin and json.dumps(self.origin)


@pytest.mark.parametrize(
    ("origin", "place"),
    [
        (None, "==" + VERSION),
        ({"url": "file:///dist/a.whl", "archive_info": {}}, " @ file:///dist/a.whl"),
        (
            {"url": "https://h/t.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            " @ git+https://h/t.git@ab12",
        ),
    ],
)
def test_uvx_runs_the_demo_again_with_its_packages(origin, place, monkeypatch, capsys):
    def lack(*_):
        raise ModuleNotFoundError("no", name="duckdb")

    called = []
    monkeypatch.setattr("thetastream.app.demo.run", lack)
    monkeypatch.setattr(demo, "distribution", lambda _: Distribution(origin))
    monkeypatch.setattr(demo.os, "execve", lambda *call: called.append(call))
    monkeypatch.setenv("UV", "/bin/uv")
    monkeypatch.delenv("UV_RUN_RECURSION_DEPTH", raising=False)
    main(["demo", "--rows", "5", "--serve"])
    ((program, command, environment),) = called
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wanted = ["--python", python, "--from", f"thetastream[demo,serve,java]{place}", "thetastream", "demo"]
    assert (program, command[:3]) == ("/bin/uv", ["/bin/uv", "tool", "run"])
    assert command[3:] == [*wanted, "--rows", "5", "--out", "out/demo", "--serve", "8080"]
    hint = shlex.join(["uvx", "--from", f"thetastream[demo,serve,java]{place}", "thetastream"])
    assert demo.name_command(environment) == hint
    # The second run does not start a third one, and neither does the environment of a project.
    for setting in (environment, {"UV_RUN_RECURSION_DEPTH": "1"}):
        with monkeypatch.context() as patched:
            for name, value in setting.items():
                patched.setenv(name, value)
            capsys.readouterr()
            assert main(["demo"]) == 1
            assert "[MISSING_PACKAGE] duckdb is needed" in capsys.readouterr().err
    assert len(called) == 1


def test_departures_are_the_year_in_event_time_order():
    table = load()
    assert table.num_rows == 328_521
    departed = table["departed"].to_numpy()
    assert (departed[1:] >= departed[:-1]).all()
    assert str(table["departed"][0].as_py()) == "2013-01-01 10:17:00+00:00"


def test_an_error_is_explained(capsys):
    assert main(["error", "bad_block", "UNDECIDED"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("BAD_BLOCK (QueryError)\n\n`block` of `th.Chain` is not")
    assert '\n    [BAD_BLOCK] block must be a positive integer or "auto"' in printed
    assert "\n\nUNDECIDED (QueryError)\n\n" in printed
    assert main(["error"]) == 0
    assert "BAD_BLOCK" in capsys.readouterr().out.splitlines()
    assert main(["error", "BAD_BLOK"]) == 1
    assert "did you mean 'BAD_BLOCK'?\nMore: thetastream error BAD_VALUE" in capsys.readouterr().err


def test_capacities_of_units_need_not_be_whole(capsys):
    parser = build_parser()
    assert parser.parse_args(["scale", "c", "--capacities", "3,0.5,1"]).capacities == (3, 0.5, 1)
    with pytest.raises(SystemExit):
        parser.parse_args(["scale", "c", "--capacities", "3,x"])
    assert "must be numbers with commas between them, not '3,x'" in capsys.readouterr().err
