"""The commands that inspect, clean, move, fork and rescale checkpoints.

``rescale`` starts Spark, and so does ``fork`` if only Spark can check the new condition.
"""

import argparse
import json
from pathlib import Path

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
from thetastream.app.job.document import find_checkpoint, is_job, read_job
from thetastream.app.job.forking import fork_job
from thetastream.app.job.rescaling import rescale
from thetastream.core.errors import QueryError
from thetastream.runtime.checkpoint_files import update_paths
from thetastream.spark.fork import fork


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "inspect",
        inspect,
        "show what a checkpoint holds, without Spark",
        epilog="example:\n  thetastream inspect job.toml",
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
        epilog="examples:\n  thetastream clean job.toml\n  thetastream clean job.toml --for-good",
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
        fork_query,
        "give a job or a query another condition; it begins with the stored tuples",
        description="Write a job with another condition, and copy the checkpoint of the stopped job for it. "
        "The new job begins with the stored tuples of the old one, after its last epoch, and takes its place "
        "in its store. It ends with FORK if the stored tuples lack what its condition needs. "
        "With a checkpoint in place of a job, only the checkpoint is copied.",
        epilog='examples:\n  thetastream fork job.toml wide.toml --on "abs(a.x - b.x) <= 3"\n'
        "  thetastream run wide.toml\n  thetastream fork checkpoint checkpoint-2",
    )
    parser.add_argument("old", metavar="JOB|CHECKPOINT", help="a job file, or a checkpoint")
    parser.add_argument("target", metavar="TARGET", help="the new job file, or the new checkpoint")
    parser.add_argument("--on", metavar="CONDITION", help="the new condition of the only join of the job")
    parser.add_argument(
        "--epoch",
        type=int,
        metavar="N",
        help="the committed epoch after which the new query begins (default: the last one)",
    )

    parser = add(
        "rescale",
        rescale_state,
        "change the number of shuffle partitions of a stopped query",
        description="Distribute the state of a stopped query over another number of shuffle partitions. The "
        "query continues after its last epoch when it starts again. Its units stay the same. With a job "
        "file, the session has the settings of the job, and the log of its file sink gets an entry.",
        epilog="examples:\n  thetastream rescale job.toml --partitions 8"
        "\n  thetastream rescale checkpoint --partitions 8 --file-sink matches",
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
        help="the folder that the query writes with Spark's file sink; the log of the sink gets an entry "
        "(default: that of the job)",
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
    found = read_checkpoint(find_checkpoint(arguments.checkpoint))
    print(json.dumps(encode_checkpoint(found)) if arguments.json else describe_checkpoint(found))
    return 0


def clean_up(arguments: argparse.Namespace) -> int:
    """Remove files that a stopped query does not need any more, and print them."""
    leftovers = clean(
        read_checkpoint(find_checkpoint(arguments.checkpoint)),
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
    checkpoint = find_checkpoint(arguments.checkpoint)
    read_checkpoint(checkpoint)  # raises NO_CHECKPOINT
    with lock(checkpoint):
        n_corrected = update_paths(checkpoint)
    print(f"{n_corrected} {'file' if n_corrected == 1 else 'files'} corrected")
    return 0


def fork_query(arguments: argparse.Namespace) -> int:
    """Fork a job or a checkpoint, and print the epoch after which the new query begins."""
    has_job = is_job(arguments.old)
    if has_job != (arguments.on is not None):
        what = "fork must have --on with a job file, and no --on with a checkpoint"
        raise QueryError("FORK", f"{what}; a query in Python gets its new condition in th.join")
    if has_job:
        old, target = Path(arguments.old), Path(arguments.target)
        forked = fork_job(old, target, arguments.on, open_session, arguments.epoch)
        epoch = forked.epoch
    else:
        read_checkpoint(arguments.old)  # raises NO_CHECKPOINT
        with lock(arguments.old):
            epoch = fork(arguments.old, arguments.target, arguments.epoch)
    print(f"{arguments.target} continues after epoch {epoch} of {arguments.old}")
    if has_job and forked.is_earlier:
        print(f"The store of {arguments.old} has later results: name another one in {arguments.target}")
    return 0


def rescale_state(arguments: argparse.Namespace) -> int:
    """Change the number of shuffle partitions of a checkpoint, and print both numbers."""
    place, settings, file_sink = arguments.checkpoint, dict(arguments.conf), arguments.file_sink
    if is_job(place):
        job = read_job(Path(place))
        place, settings = job.checkpoint, {**job.spark, **settings}
        if file_sink is None and job.sink.is_file_sink:
            file_sink = job.sink.path
    with open_session(settings) as spark:
        found = rescale(spark, place, arguments.partitions, file_sink)
    if arguments.json:
        print(json.dumps(found._asdict()))
        return 0
    print(f"partitions  {found.before} before, {found.now} now")
    for model in found.chosen:
        print(f"model       {model} was chosen by the planner; start the query with model=th.{model}")
    return 0
