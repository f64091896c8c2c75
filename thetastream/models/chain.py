"""The handshake chain (ESJ, after the handshake join: Teubner and Mueller, SIGMOD 2011).

R enters at the left end of a chain of workers and moves right. S enters at the right end and moves left.
Tuples join when they meet at a worker. A worker forwards a block only if its load exceeds that of its
neighbour. So windows spread evenly over all workers, and no router needs to know them all.

The low-latency variant (Roy, Teubner and Gemulla, VLDB 2014) sends every tuple to all workers at once and
stores it at its home. On Spark, this takes one exchange, as in SplitJoin. (The SplitJoin paper uses this
variant as a baseline.)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from thetastream.core.arguments import is_number
from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s
from thetastream.core.sides import Role, Side
from thetastream.models.base import AUTO, CHANGEABLE, Hashes, Model, Route, is_positive
from thetastream.models.drawing import Drawing, row

EVEN = 0.5
"""The ``alpha`` with which messages and imbalance weigh the same."""
HOME_BLOCK = 64
"""The number of consecutive tuples that have the same home."""


@dataclass(frozen=True)
class Chain(Model):
    """The handshake chain: k workers in a row, each with a stretch of both windows. It runs any condition.

    A pair is found when its tuples pass each other, when one of them expires, or when both streams pause.
    This may be long after the later tuple came. With ``fast_forward``, a pair is found at once, as in other
    models.

    Parameters
    ----------
    workers : int
        Units of the chain.
    block : int or "auto"
        The largest number of stored tuples that move on in one message. "auto", the default, is the size that
        costs least by what a worker measures.
    forward_threshold : int, optional
        How many more tuples than its neighbour a worker may hold before it forwards a block. If it is left
        out, it is the number of tuples of a block.
    alpha : float
        How much the cost of messages weighs for ``block="auto"``, between 0 and 1; the imbalance of loads
        weighs 1 - ``alpha`` (ESJ's target function). A larger ``alpha`` gives larger blocks.
    fast_forward : bool
        Whether tuples visit all workers at once. Each is then stored at one worker, round robin.

    Raises
    ------
    QueryError
        BAD_UNITS, BAD_BLOCK, BAD_LIMIT or BAD_VALUE if a setting has another type or range.

    Examples
    --------
    >>> Chain(workers=3).n_units
    3
    >>> pairs = th.join(streams, "a.x > b.y", "1 hour", th.Chain(workers=3))  # doctest: +SKIP
    """

    workers: int = 1
    block: int | str = field(default=AUTO, metadata=CHANGEABLE)
    forward_threshold: int | None = field(default=None, metadata=CHANGEABLE)
    fast_forward: bool = False
    alpha: float = field(default=EVEN, metadata=CHANGEABLE)
    name: ClassVar[str] = "chain"
    sizes: ClassVar[tuple[str, ...]] = ("workers",)

    def __post_init__(self) -> None:
        if not is_positive(self.workers):
            raise QueryError("BAD_UNITS", f"workers must be a positive integer, not {self.workers!r}")
        if self.block != AUTO and not is_positive(self.block):
            raise QueryError("BAD_BLOCK", f'block must be a positive integer or "auto", not {self.block!r}')
        threshold = self.forward_threshold
        is_count = isinstance(threshold, int) and not isinstance(threshold, bool)
        if threshold is not None and (not is_count or threshold < 0):
            raise QueryError(
                "BAD_LIMIT", f"forward_threshold must be a number of tuples, 0 or more, not {threshold!r}"
            )
        if not is_number(self.alpha) or not 0 < self.alpha < 1:
            raise QueryError("BAD_VALUE", f"alpha must be a number between 0 and 1, not {self.alpha!r}")
        if not isinstance(self.fast_forward, bool):
            raise QueryError("BAD_VALUE", f"fast_forward must be True or False, not {self.fast_forward!r}")

    def __repr__(self) -> str:
        given = [f"workers={self.workers}"]
        given += [f"block={self.block}"] * (self.block != AUTO)
        given += [f"forward_threshold={self.forward_threshold}"] * (self.forward_threshold is not None)
        given += ["fast_forward=True"] * self.fast_forward
        given += [f"alpha={self.alpha}"] * (self.alpha != EVEN)
        return f"Chain({', '.join(given)})"

    @classmethod
    def variants(
        cls, n_units: int, subgroups: Callable[[int], int], needs_partners: bool = False
    ) -> Iterator[Model]:
        yield from ()  # the cost of messages does not follow from routes

    @property
    def n_units(self) -> int:
        return self.workers

    @property
    def forwards_tuples(self) -> bool:
        """Whether tuples move from worker to worker."""
        return not self.fast_forward

    @property
    def runs_on_units(self) -> bool:
        return not self.forwards_tuples

    @property
    def on_batch(self) -> "Chain":
        """The chain that joins batch DataFrames, which have no epochs in which tuples could move."""
        return Chain(self.workers, fast_forward=True)

    @property
    def sees_all(self) -> bool:
        return self.fast_forward

    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        if self.fast_forward:
            for worker in range(self.workers):
                yield Route(worker, Role.BOTH, None)
            return
        yield Route(self.end(side), Role.BOTH, None)
        if self.end(side) != self.workers - 1:
            # An empty block tells the right end that there are new tuples, because it must notice when
            # streams pause.
            yield Route(self.workers - 1, Role.PROBE, np.zeros(0, dtype=np.int64))

    def route_probes(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        for worker in range(self.workers):
            yield Route(worker, Role.PROBE, None)

    def end(self, side: Side) -> int:
        """The worker at which a stream enters."""
        return 0 if side is Side.LEFT else self.workers - 1

    def counts(self, unit: int, side: Side) -> bool:
        return unit == (0 if self.fast_forward else self.end(side))

    def keeps(self, unit: int, sequence: Int64s, times: Int64s) -> npt.NDArray[np.bool_]:
        mine: npt.NDArray[np.bool_] = sequence // HOME_BLOCK % self.workers == unit
        return mine

    def draw(self) -> Drawing:
        return row(["worker"] * self.workers, is_linked=not self.fast_forward)

    def describe(self) -> str:
        if self.fast_forward:
            return f"chain: {self.workers} worker(s) get every tuple at once, its home stores it"
        limit = "a block" if self.forward_threshold is None else f"{self.forward_threshold} tuples"
        blocks = "blocks" if self.block == AUTO else f"blocks of {self.block} tuples"
        return (
            f"chain: {self.workers} worker(s) in a row; left tuples move right, right ones left, in "
            f"{blocks}, to a neighbour that holds {limit} less"
        )
