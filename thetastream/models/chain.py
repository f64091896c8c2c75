"""The handshake chain (ESJ, after the handshake join: Teubner and Mueller, SIGMOD 2011).

R enters at the left end of a chain of workers and moves right, S at the right end and moves left; where they
meet they join. A worker hands a block on only if its load exceeds its neighbour's, so windows spread
themselves evenly over whatever workers there are, without a router that knows them all.

The low-latency variant (Roy, Teubner and Gemulla, VLDB 2014) sends every tuple past all workers at once and
stores it at its home; on Spark one exchange does that, as it does for SplitJoin, whose baseline it was.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from thetastream.errors import QueryError
from thetastream.keys import Int64s
from thetastream.models.base import Hashes, Model, Route, positive_pair
from thetastream.types import Role, Side

AUTO = "auto"
HOME_BLOCK = 64
"""Tuples in a row that have one home."""


@dataclass(frozen=True)
class Chain(Model):
    """k workers in a row, each with a stretch of both windows; any condition.

    A pair is found when its tuples pass each other, or one of them expires, or both streams pause: maybe long
    after the later one came. With ``fast_forward`` it is found as in other models.

    Parameters
    ----------
    workers : int
        Units of the chain.
    block : int or "auto"
        Most stored tuples that move on in one message; "auto", the default: the optimum of
        ``thetastream.joiner.block_size`` for what a worker measures.
    forward_threshold : int, optional
        How many tuples more than its neighbour a worker may hold before it forwards a block; a block's when
        left out.
    fast_forward : bool
        Whether tuples visit all workers at once, and are stored at a home, round robin.

    Raises
    ------
    QueryError
        BAD_UNITS, BAD_BLOCK, BAD_LIMIT, BAD_VALUE if a setting is not what is said above.

    Examples
    --------
    >>> Chain(workers=3).n_units
    3
    >>> pairs = th.join(streams, "a.x > b.y", "1 hour", th.Chain(workers=3))  # doctest: +SKIP
    """

    workers: int = 1
    block: int | str = AUTO
    forward_threshold: int | None = None
    fast_forward: bool = False
    name: ClassVar[str] = "chain"
    is_costed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.workers, tuple | list) or positive_pair(self.workers) is None:
            raise QueryError("BAD_UNITS", f"workers must be a positive integer, not {self.workers!r}")
        if self.block != AUTO and (isinstance(self.block, tuple | list) or positive_pair(self.block) is None):
            raise QueryError("BAD_BLOCK", f'block must be a positive integer or "auto", not {self.block!r}')
        threshold = self.forward_threshold
        is_number = isinstance(threshold, int) and not isinstance(threshold, bool)
        if threshold is not None and (not is_number or threshold < 0):
            raise QueryError(
                "BAD_LIMIT", f"forward_threshold must be a number of tuples, 0 or more, not {threshold!r}"
            )
        if not isinstance(self.fast_forward, bool):
            raise QueryError("BAD_VALUE", f"fast_forward must be True or False, not {self.fast_forward!r}")

    def __repr__(self) -> str:
        given = [f"workers={self.workers}"]
        given += [f"block={self.block}"] * (self.block != AUTO)
        given += [f"forward_threshold={self.forward_threshold}"] * (self.forward_threshold is not None)
        given += ["fast_forward=True"] * self.fast_forward
        return f"Chain({', '.join(given)})"

    @property
    def n_units(self) -> int:
        return self.workers

    @property
    def hands_on(self) -> bool:
        """Whether tuples move from worker to worker."""
        return not self.fast_forward

    @property
    def kept(self) -> "Chain":
        return Chain(self.workers, fast_forward=self.fast_forward)

    @property
    def on_batch(self) -> "Chain":
        return Chain(self.workers, fast_forward=True)

    @property
    def sees_all(self) -> bool:
        return self.fast_forward

    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        if self.fast_forward:
            for worker in range(self.workers):
                yield Route(worker, Role.BOTH, None)
        else:
            yield Route(self.end(side), Role.BOTH, None)

    def is_prompt(self, n_streams: int) -> bool:
        return self.fast_forward

    def end(self, side: Side) -> int:
        """The worker at which a stream enters."""
        return 0 if side is Side.LEFT else self.workers - 1

    def is_home(self, unit: int, side: Side) -> bool:
        return unit == (0 if self.fast_forward else self.end(side))

    def keeps(self, unit: int, sequence: Int64s, times: Int64s) -> npt.NDArray[np.bool_]:
        mine: npt.NDArray[np.bool_] = sequence // HOME_BLOCK % self.workers == unit
        return mine

    def describe(self) -> str:
        if self.fast_forward:
            return f"chain: {self.workers} worker(s) get every tuple at once, its home stores it"
        limit = "a block" if self.forward_threshold is None else f"{self.forward_threshold} tuples"
        blocks = "blocks" if self.block == AUTO else f"blocks of {self.block} tuples"
        return (
            f"chain: {self.workers} worker(s) in a row; left tuples move right, right ones left, in "
            f"{blocks}, to a neighbour that holds {limit} less"
        )
