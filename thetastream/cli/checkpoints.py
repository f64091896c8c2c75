"""The commands that look after checkpoints; they start no Spark."""

import argparse
import json

from thetastream.job.checkpoint import read_checkpoint
from thetastream.job.inspection import describe_checkpoint, encode_checkpoint


def inspect(arguments: argparse.Namespace) -> int:
    """Print what a checkpoint holds."""
    found = read_checkpoint(arguments.checkpoint)
    print(json.dumps(encode_checkpoint(found)) if arguments.json else describe_checkpoint(found))
    return 0
