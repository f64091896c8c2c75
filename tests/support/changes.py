"""Streams of changes for tests: random histories, and their answer over the net rows.

The net rows of a stream are a bag: the sum of the signs of its timely tuples, by row. The answer is the join
of the net bags, in which the numbers of two rows are multiplied, also negative ones.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Row = tuple[Any, ...]


class Change(NamedTuple):
    """A row that is inserted (sign 1) or deleted (sign -1)."""

    row: Row
    sign: int


class Epoch(NamedTuple):
    """The changes of both streams in one epoch, and its watermark."""

    left: list[Change]
    right: list[Change]
    watermark: int | None


def draw_history(
    chance: random.Random, n_epochs: int, make_row: Callable[[random.Random, int], Row], has_watermark: bool
) -> list[Epoch]:
    """Draw a history of two streams.

    It has equal rows, deletes some epochs after their insert and before it, deletes without an insert, rows
    that are inserted and deleted in one epoch, and rows that are deleted and inserted again. Some changes are
    late. ``make_row`` makes a row for an epoch.
    """
    planned: list[tuple[list[Change], list[Change]]] = [([], []) for _ in range(n_epochs + 6)]
    for epoch in range(n_epochs):
        for side in (0, 1):
            for _ in range(chance.randrange(6)):
                row = make_row(chance, epoch)
                kind = chance.random()
                copies = 2 if chance.random() < 0.2 else 1
                planned[epoch][side].extend([Change(row, 1)] * copies)
                if kind < 0.35:
                    planned[epoch + chance.randrange(6)][side].append(Change(row, -1))
                elif kind < 0.45:  # the delete comes first
                    planned[epoch][side].pop()
                    planned[epoch][side].append(Change(row, -1))
                    planned[epoch + chance.randrange(5)][side].append(Change(row, 1))
                elif kind < 0.5:  # an update: the old row goes, and a new one comes
                    later = epoch + chance.randrange(4)
                    planned[later][side].append(Change(row, -1))
                    planned[later][side].append(Change(make_row(chance, epoch), 1))
                elif kind < 0.55:
                    planned[epoch][side].append(Change(make_row(chance, epoch), -1))
    watermark: int | None = None
    epochs = []
    for number, (left, right) in enumerate(planned):
        chance.shuffle(left)
        chance.shuffle(right)
        if has_watermark and chance.random() < 0.6:
            watermark = max(watermark or 0, 3 * number - chance.randrange(4, 12))
        epochs.append(Epoch(left, right, watermark))
    return epochs


def net(changes: Iterable[Change]) -> Counter[Row]:
    """Sum the signs of changes by row. Rows whose sum is 0 are left out."""
    found: Counter[Row] = Counter()
    for row, sign in changes:
        found[row] += sign
    return drop_zeros(found)


def drop_zeros(rows: Counter[Any]) -> Counter[Any]:
    """Leave out what has the number 0. Negative numbers stay."""
    return Counter({row: n for row, n in rows.items() if n})


def join_net(
    left: Counter[Row], right: Counter[Row], matches: Callable[[Row, Row], bool]
) -> Counter[tuple[Row, Row]]:
    """Join two net bags."""
    return Counter({(a, b): n * m for a, n in left.items() for b, m in right.items() if matches(a, b)})
