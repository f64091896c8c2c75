"""The commands that inspect, clean, move, fork and rescale checkpoints. Only ``rescale`` starts Spark."""

import argparse
import json

from thetastream.app.cli.shared_arguments import (
    AddCommand,
    add_checkpoint,
    open_session,
    read_pair,
    read_positive,
    read_seconds,
)
from thetastream.app.job.checkpoint import describe_checkpoint, encode_checkpoint, lock, read_checkpoint
from thetastream.app.job.cleaning import clean
from thetastream.app.job.rescaling import rescale
from thetastream.runtime.checkpoint_files import update_paths
from thetastream.spark.fork import fork


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "inspect",
        inspect,
        "show what a checkpoint holds, without Spark",
        epilog="example:\n  thetastream inspect checkpoint",
    )
    add_checkpoint(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")

    parser = add(
        "clean",
        clean_up,
        "remove the files of a stopped query that no restart needs",
        description="Remove messages that were read, temporary files and cached segments of this host. "
        "With --for-good, also remove the mailboxes, the reports and the checkpoint of the query. Nothing is "
        "removed while the query runs.",
        epilog="examples:\n  thetastream clean checkpoint\n  thetastream clean checkpoint --for-good",
    )
    add_checkpoint(parser)
    parser.add_argument(
        "--for-good", action="store_true", help="remove all files of a query that will never run again"
    )
    parser.add_argument("--dry-run", action="store_true", help="only list what would be removed")
    parser.add_argument(
        "--min-age",
        type=read_seconds,
        default=3600.0,
        metavar="1h",
        help="refuse a checkpoint that changed less than this time ago, because its query may run on another "
        "machine (default 1h)",
    )
    parser.add_argument("--mailbox", metavar="DIR", help="the folder of mailboxes, if it has moved")
    parser.add_argument("--cache-folder", metavar="DIR", help="the cache_folder of the query on this host")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")

    parser = add(
        "update-paths",
        correct_paths,
        "correct the paths in a checkpoint that was moved or copied, without Spark",
        description="Spark writes the place of a checkpoint into some of its files. Run this command at the "
        "new place before the query starts. Move or copy the mailbox of the query too.",
        epilog="example:\n  mv checkpoint elsewhere\n  thetastream update-paths elsewhere/checkpoint",
    )
    add_checkpoint(parser)

    parser = add(
        "fork",
        fork_checkpoint,
        "make a checkpoint for a query with another condition, which begins with the stored tuples",
        description="Copy the checkpoint of a stopped query for one with another condition. The new query "
        "begins with the stored tuples of the old one, after its last epoch. Give it a sink of its own. It "
        "ends with FORK if the stored tuples lack what its condition needs.",
        epilog="example:\n  thetastream fork checkpoint checkpoint-2\n  thetastream run job-2.toml",
    )
    add_checkpoint(parser)
    parser.add_argument("target", metavar="TARGET", help="the checkpoint of the new query, an empty folder")

    parser = add(
        "rescale",
        rescale_state,
        "change the number of shuffle partitions of a stopped query",
        description="Distribute the state of a stopped query over another number of shuffle partitions. The "
        "query continues after its last epoch when it starts again. Its units stay the same.",
        epilog="example:\n  thetastream rescale checkpoint --partitions 8",
    )
    add_checkpoint(parser)
    parser.add_argument(
        "--partitions",
        type=read_positive,
        required=True,
        metavar="N",
        help="the new number of shuffle partitions",
    )
    parser.add_argument(
        "--file-sink",
        metavar="DIR",
        help="the folder that the query writes with Spark's file sink; the log of the sink gets an entry",
    )
    parser.add_argument(
        "--conf",
        action="append",
        type=read_pair,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the Spark session, as in --conf spark.master=yarn",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def inspect(arguments: argparse.Namespace) -> int:
    """Print what a checkpoint holds."""
    found = read_checkpoint(arguments.checkpoint)
    print(json.dumps(encode_checkpoint(found)) if arguments.json else describe_checkpoint(found))
    return 0


def clean_up(arguments: argparse.Namespace) -> int:
    """Remove files that a stopped query does not need any more, and print them."""
    leftovers = clean(
        read_checkpoint(arguments.checkpoint),
        arguments.for_good,
        arguments.dry_run,
        arguments.min_age,
        arguments.mailbox,
        arguments.cache_folder,
    )
    for leftover in leftovers:
        figures = {"what": leftover.what, "path": leftover.path, "bytes": leftover.nbytes}
        line = f"{leftover.what}: {leftover.path} ({leftover.nbytes:,} bytes)"
        print(json.dumps(figures) if arguments.json else line)
    if not arguments.json:
        verb = "would be removed" if arguments.dry_run else "removed"
        print(f"{len(leftovers)} {verb}, {sum(one.nbytes for one in leftovers) / 1e6:,.1f} MB")
    return 0


def correct_paths(arguments: argparse.Namespace) -> int:
    """Correct the paths in a checkpoint, and print the number of files that had wrong ones."""
    read_checkpoint(arguments.checkpoint)  # raises NO_CHECKPOINT
    with lock(arguments.checkpoint):
        n_corrected = update_paths(arguments.checkpoint)
    print(f"{n_corrected} {'file' if n_corrected == 1 else 'files'} corrected")
    return 0


def fork_checkpoint(arguments: argparse.Namespace) -> int:
    """Make the checkpoint of a fork, and print the epoch after which it begins."""
    read_checkpoint(arguments.checkpoint)  # raises NO_CHECKPOINT
    with lock(arguments.checkpoint):
        epoch = fork(arguments.checkpoint, arguments.target)
    print(f"{arguments.target} continues after epoch {epoch} of {arguments.checkpoint}")
    return 0


def rescale_state(arguments: argparse.Namespace) -> int:
    """Change the number of shuffle partitions of a checkpoint, and print both numbers."""
    with open_session(dict(arguments.conf)) as spark:
        found = rescale(spark, arguments.checkpoint, arguments.partitions, arguments.file_sink)
    if arguments.json:
        print(json.dumps(found._asdict()))
        return 0
    print(f"partitions  {found.before} before, {found.now} now")
    for model in found.chosen:
        print(f"model       {model} was chosen by the planner; start the query with model=th.{model}")
    return 0
