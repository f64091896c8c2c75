"""What a letter costs: a and c of the block size's target function, measured.

    seconds of a block of b tuples, w bytes each = a + b w c

A worker's blocks of an epoch are sealed, posted in one file, fetched and opened, and acknowledged the same
way. ``a`` and ``c`` are the straight line through the seconds of blocks of several sizes. The file itself is
one an epoch, however many blocks it holds; its seconds stand apart.
"""

import tempfile
import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from bench.esj.inputs import drawn
from thetastream.blocks import concat
from thetastream.joiner.handshake import Letter
from thetastream.joiner.protocol import AckBlk, Group, TupleBlk
from thetastream.mailbox import Mailbox
from thetastream.spark.letters import opened, posted
from thetastream.types import Side

SIZES = (64, 256, 1024, 4096, 16384)
LETTERS = 16
"""In one file."""


@dataclass(frozen=True)
class LetterCost:
    """Seconds."""

    message_s: float
    byte_s: float
    file_s: float
    """Of a file with a single letter, without tuples."""


def letter_cost(repeat: int = 9) -> LetterCost:
    """Medians of several times."""
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(prefix="bench-letters-") as folder:
        box = Mailbox(folder, "letters")
        box.create({})
        empty = _seconds(box, [Letter(AckBlk(Side.LEFT))], repeat)
        per_block, nbytes = [], []
        for size in SIZES:
            block = concat(drawn(random, size).to_batches())
            sent = [Letter(TupleBlk(Group.FRESH), block)] * LETTERS
            acknowledged = [Letter(AckBlk(Side.LEFT))] * LETTERS
            both = _seconds(box, sent, repeat) + _seconds(box, acknowledged, repeat) - 2 * empty
            per_block.append(both / LETTERS)
            nbytes.append(block.nbytes)
    slope, intercept = np.polyfit(nbytes, per_block, 1)
    return LetterCost(float(intercept), float(slope), empty)


def _seconds(box: Mailbox, letters: list[Letter], repeat: int) -> float:
    """Of one file there and back."""
    found = []
    for number in range(repeat):
        began = time.process_time()
        box.post(number, 0, posted(0, [(1, letter) for letter in letters], [0, 1]))
        for batch in box.fetch(number, 0):
            kinds, data = (batch.column(name).to_pylist() for name in ("kind", "block"))
            for kind, block in zip(kinds, data, strict=True):
                opened(kind, block)
        found.append(time.process_time() - began)
        box.clear(number)
    return median(found)
