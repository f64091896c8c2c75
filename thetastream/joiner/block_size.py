"""How many tuples a block of the handshake chain should have (ESJ: the target function J).

    J(b) = moved (a / b + w c)  +  probes g l b / 2          seconds of an epoch

*serialisation* moved a / b: every block costs its message and its acknowledgement, whatever is in it;
*transmission* moved w c: bytes cost the same in blocks of any size;
*imbalance* probes g l b / 2: neighbours differ by a block, half of it on average, an epoch lasts as long as
its most loaded worker, and a probe looks at the share g of what is stored there, at l seconds a look.

J is least where its first and last term are equal: b = sqrt(2 moved a / (probes g l)).
"""

from dataclasses import dataclass
from math import inf, sqrt

MESSAGE_S = 1.3e-3
"""a: all that a block costs, whatever is in it, at both workers: the slope of an epoch's CPU over its
blocks, 4 workers, blocks of 64 to 32,768 tuples (``python -m bench esj``). To seal, post, fetch and open it
and its acknowledgement is 0.1 to 0.2 ms of it; the rest is to cut a run and to index, keep and search the
pieces. Spark's state store is not in it."""
BYTE_S = 4e-9
"""c: to seal, post, fetch and open a byte of a block, 64 to 16,384 tuples; Spark's exchange is not in it."""
LOOK_S = 5e-9
"""To look at a stored tuple: CPU per candidate of a nested loop over windows of 4,096 to 16,384 tuples."""
SMALLEST, LARGEST = 1 << 6, 1 << 17
SHARE = 1 / 8
LARGEST_BYTES = 1 << 26
"""However wide tuples are."""


@dataclass(frozen=True)
class BlockCost:
    """What a worker does in an epoch, measured or estimated.

    Parameters
    ----------
    moved : float
        Tuples that it forwards.
    probes : float
        Tuples that look for partners there.
    look_share : float
        Of the stored tuples, the part that one probe looks at: 1 for a scan.
    nbytes : float
        Of a tuple.
    held : float
        Tuples that it stores. Memory should be even too, so a block is an eighth of them at most.
    """

    moved: float
    probes: float
    look_share: float
    nbytes: float
    held: float = inf

    def serialisation_s(self, block: float) -> float:
        """Seconds of messages, of blocks of so many tuples.

        >>> BlockCost(moved=1e6, probes=1e6, look_share=1e-3, nbytes=40).serialisation_s(10_000)
        0.13
        """
        return self.moved * MESSAGE_S / block

    @property
    def transmission_s(self) -> float:
        """Seconds of bytes."""
        return self.moved * self.nbytes * BYTE_S

    def imbalance_s(self, block: float) -> float:
        """Seconds for which the most loaded worker is waited for."""
        return self.probes * self.look_share * LOOK_S * block / 2

    def total_s(self, block: float) -> float:
        """J."""
        return self.serialisation_s(block) + self.transmission_s + self.imbalance_s(block)

    def best(self) -> int:
        """The block for which J is least, within reason.

        >>> cost = BlockCost(moved=1e6, probes=1e6, look_share=1e-3, nbytes=40)
        >>> cost.best(), cost.total_s(cost.best()) <= min(cost.total_s(22_750), cost.total_s(22_850))
        (22803, True)
        """
        slope = self.probes * self.look_share * LOOK_S / 2
        best = sqrt(self.moved * MESSAGE_S / slope) if slope else inf
        room = LARGEST_BYTES / max(self.nbytes, 1.0)
        return int(min(max(min(best, self.held * SHARE, LARGEST), SMALLEST), max(room, 1.0)))
