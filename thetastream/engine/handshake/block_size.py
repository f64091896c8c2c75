"""The best number of tuples in a block of the handshake chain (ESJ calls J the target function).

    J(b) = moved (a / b + w c)  +  probes g l b / 2          seconds of an epoch

*serialisation* moved a / b: every block has the cost of a message and an acknowledgement, whatever its size.
*transmission* moved w c: a byte has the same cost in blocks of any size.
*imbalance* probes g l b / 2: the loads of neighbours differ by up to a block, half a block on average. An
epoch lasts until its most loaded worker is done. There, a probe compares the share g of the stored tuples,
and each comparison takes l seconds.

J is smallest where the first term equals the last: b = sqrt(2 moved a / (probes g l)). ESJ weighs messages by
alpha and imbalance by 1 - alpha. The best block is then larger by sqrt(alpha / (1 - alpha)).

Each worker measures the work of its own epochs, and the size of its blocks follows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

from thetastream.engine.counters import Counters
from thetastream.models.base import AUTO
from thetastream.models.chain import EVEN

MESSAGE_S = 1.3e-3
"""The constant a: the CPU seconds of a block at both workers, whatever its size. ``python -m bench esj``
measured it as the slope of CPU time over the number of blocks in an epoch, with 4 workers and blocks of 64 to
32,768 tuples. Of this, 0.1 to 0.2 ms are spent to serialise, write, read and deserialise the block and its
acknowledgement. The rest is spent to cut a run, and to index, store and search the pieces. Spark's state
store is not included."""
BYTE_S = 4e-9
"""The constant c: the CPU seconds to serialise, write, read and deserialise a byte of a block, measured with
blocks of 64 to 16,384 tuples. Spark's exchange is not included."""
LOOK_S = 5e-9
"""The constant l: the CPU seconds to compare a stored tuple, measured per candidate of a nested loop over
windows of 4,096 to 16,384 tuples."""
SMALLEST, LARGEST = 1 << 6, 1 << 17
"""The smallest and the largest block, in tuples."""
SHARE, LARGEST_SHARE = 1 / 4, 1 / 2
"""The largest block, as a share of the tuples that a worker stores: for an alpha of a half, and for any."""
LARGEST_BYTES = 1 << 26
"""The largest block, in bytes. It limits blocks of wide tuples."""
FIRST_BLOCK = 512
"""The block size, in tuples, until a worker has measured its work."""
KEEP = 0.95
"""The weight of earlier epochs in the measured means."""


@dataclass(frozen=True)
class BlockCost:
    """The work of a worker in an epoch, measured or estimated, and the cost of a block size.

    Parameters
    ----------
    moved : float
        Number of tuples that the worker forwards.
    probes : float
        Number of tuples that look for partners at the worker.
    look_share : float
        Share of the stored tuples that one probe compares. It is 1 for a scan.
    nbytes : float
        Bytes of a tuple.
    held : float
        Number of tuples that the worker stores. A block has at most a quarter of them, so that the memory of
        the workers stays balanced too.
    """

    moved: float
    probes: float
    look_share: float
    nbytes: float
    held: float = inf

    def serialisation_s(self, block: float) -> float:
        """The seconds of an epoch that messages take, for blocks of this many tuples.

        >>> BlockCost(moved=1e6, probes=1e6, look_share=1e-3, nbytes=40).serialisation_s(10_000)
        0.13
        """
        return self.moved * MESSAGE_S / block

    @property
    def transmission_s(self) -> float:
        """The seconds of an epoch that the bytes of blocks take."""
        return self.moved * self.nbytes * BYTE_S

    def imbalance_s(self, block: float) -> float:
        """The seconds of an epoch for which the other workers wait for the most loaded one."""
        return self.probes * self.look_share * LOOK_S * block / 2

    def total_s(self, block: float) -> float:
        """The target function J: the seconds of an epoch that depend on blocks."""
        return self.serialisation_s(block) + self.transmission_s + self.imbalance_s(block)

    def find_best(self, alpha: float = EVEN) -> int:
        """Find the block size with the smallest J, within the limits of this module.

        ``alpha`` is the weight of messages beside the imbalance, between 0 and 1.

        >>> cost = BlockCost(moved=1e6, probes=1e6, look_share=1e-3, nbytes=40)
        >>> cost.find_best()
        22803
        >>> cost.total_s(22_803) <= min(cost.total_s(22_750), cost.total_s(22_850))
        True
        >>> cost.find_best(alpha=0.8)
        45607
        """
        weight = alpha / (1 - alpha)
        slope = self.probes * self.look_share * LOOK_S / 2
        best = sqrt(weight * self.moved * MESSAGE_S / slope) if slope else inf
        most = min(self.held * min(SHARE * weight, LARGEST_SHARE), LARGEST)
        room = LARGEST_BYTES / max(self.nbytes, 1.0)
        return int(min(max(min(best, most), SMALLEST), max(room, 1.0)))


def choose_block(asked: int | str, alpha: float, measured: Sequence[float]) -> int:
    """Choose the size of a block in tuples: what the user asked for, or the best by what is measured.

    ``alpha`` is that of ``find_best``. ``measured`` has the arguments of ``BlockCost``, or nothing before the
    first measurement.
    """
    if asked != AUTO:
        return int(asked)
    return BlockCost(*measured).find_best(alpha) if measured else FIRST_BLOCK


def average_work(
    before: Sequence[float],
    counters: Counters,
    load: int,
    n_forwarded: int,
    arrived_bytes: int,
    n_workers: int,
) -> list[float]:
    """Average the arguments of ``BlockCost`` over epochs; an epoch without measurements changes nothing.

    Parameters
    ----------
    before : sequence of float
        The averages before this epoch; empty before the first measurement.
    counters : Counters
        The counters of this epoch.
    load : int
        The number of tuples that the worker stores.
    n_forwarded : int
        The number of tuples that it forwarded in blocks.
    arrived_bytes : int
        The bytes of the tuples that arrived.
    n_workers : int
        The number of workers of the chain.
    """
    if not (counters.probed and load and counters.received and (before or counters.candidates)):
        return list(before)
    now = [
        float(n_forwarded),
        float(counters.probed),
        min(1.0, counters.candidates / counters.probed / load),
        arrived_bytes / counters.received,
        float(load),
    ]
    # Blocks may be rare, so a worker at first assumes that it forwards as many tuples as the end of a
    # balanced chain.
    before = before or [counters.received * (n_workers - 1) / n_workers, *now[1:]]
    return [KEEP * old + (1 - KEEP) * new for old, new in zip(before, now, strict=True)]
