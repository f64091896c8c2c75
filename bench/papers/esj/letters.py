"""Measures the cost of a letter: a and c of the target function of the block size.

    seconds of a block of b tuples, w bytes each = a + b w c

A worker seals the blocks of an epoch and posts them in one file. Its neighbour fetches the file, opens the
blocks, and acknowledges them in the same way. ``a`` and ``c`` are the straight line through the seconds of
blocks of several sizes. There is one file for each epoch, whatever number of blocks it holds, so it is
measured apart.
"""

import tempfile
import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from bench.core.internals import AckBlk, Group, HandshakeMessage, Side, TupleBlk, concat
from bench.papers.esj.inputs import draw_tuples
from bench.papers.esj.replay import Post

SIZES = (64, 256, 1024, 4096, 16384)
LETTERS = 16
"""Number of letters in one file."""


@dataclass(frozen=True)
class LetterCost:
    message_s: float
    byte_s: float
    file_s: float
    """Seconds of a file with a single letter without tuples."""


def letter_cost(repeat: int = 9) -> LetterCost:
    random = np.random.default_rng(1)
    acknowledged = [HandshakeMessage(AckBlk(Side.LEFT))] * LETTERS
    empty, per_block, nbytes = _seconds(acknowledged[:1], repeat), [], []
    for size in SIZES:
        block = concat(draw_tuples(random, size).to_batches())
        sent = [HandshakeMessage(TupleBlk(Group.FRESH), block)] * LETTERS
        both = _seconds(sent, repeat) + _seconds(acknowledged, repeat) - 2 * empty
        per_block.append(both / LETTERS)
        nbytes.append(block.nbytes)
    slope, intercept = np.polyfit(nbytes, per_block, 1)
    return LetterCost(float(intercept), float(slope), empty)


def _seconds(letters: list[HandshakeMessage], repeat: int) -> float:
    found = []
    with tempfile.TemporaryDirectory(prefix="bench-letters-") as folder:
        post = Post(folder, 2)
        for number in range(repeat):
            began = time.process_time()
            post.send(number, 0, [letter.to_message(1) for letter in letters])
            post.turn()
            for message in post.messages(1):
                HandshakeMessage.from_message(message)
            found.append(time.process_time() - began)
            post.clear(number)
    return median(found)
