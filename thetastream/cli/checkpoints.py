"""The commands that look after checkpoints; they start no Spark."""

import argparse
import json

from thetastream.job.checkpoint import read_checkpoint
from thetastream.job.cleaning import clean
from thetastream.job.inspection import describe_checkpoint, encode_checkpoint


def inspect(arguments: argparse.Namespace) -> int:
    """Print what a checkpoint holds."""
    found = read_checkpoint(arguments.checkpoint)
    print(json.dumps(encode_checkpoint(found)) if arguments.json else describe_checkpoint(found))
    return 0


def clean_up(arguments: argparse.Namespace) -> int:
    """Remove what a query has left behind, and print it."""
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
