"""Prints a table of epochs that grows while the query runs, with a progress bar below it on a terminal."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

_CLEAR = "\r\x1b[2K"
_COLUMNS = (
    ("epoch", 5),
    ("until (UTC)", 16),
    ("tuples", 9),
    ("tuples/s", 9),
    ("matches", 9),
    ("in all", 9),
    ("state", 9),
)


@dataclass(frozen=True)
class Epoch:
    """One line of the table."""

    number: int
    reached: str
    """The latest event time of the epoch, in ISO 8601."""
    tuples: int
    seconds: float
    matches: int
    state_bytes: int


class Board:
    """Prints each epoch when it ends; ``n_tuples`` is the number of tuples in the whole replay."""

    def __init__(self, out: TextIO, n_tuples: int) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._n_tuples = n_tuples
        self._tuples = 0
        self._matches = 0
        self._seconds = 0.0
        self._write(_format_line(name for name, _ in _COLUMNS))
        self._write(_format_line("-" * width for _, width in _COLUMNS))
        self._draw_bar()

    def add(self, epoch: Epoch) -> None:
        """Add one epoch to the totals, and print it unless it is an epoch without input."""
        self._tuples += epoch.tuples
        self._matches += epoch.matches
        self._seconds += epoch.seconds
        if epoch.tuples:
            self._write(
                _format_line(
                    (
                        str(epoch.number),
                        epoch.reached[:16].replace("T", " "),
                        f"{epoch.tuples:,}",
                        f"{epoch.tuples / max(epoch.seconds, 1e-3):,.0f}",
                        f"{epoch.matches:,}",
                        f"{self._matches:,}",
                        format_bytes(epoch.state_bytes),
                    )
                )
            )
        self._draw_bar()

    def close(self) -> None:
        """Print the totals."""
        rate = self._tuples / max(self._seconds, 1e-3)
        self._write(_format_line("-" * width for _, width in _COLUMNS))
        self._write(
            _format_line(("all", "", f"{self._tuples:,}", f"{rate:,.0f}", f"{self._matches:,}", "", ""))
        )

    def _write(self, line: str) -> None:
        self._out.write((_CLEAR if self._is_terminal else "") + line.rstrip() + "\n")
        self._out.flush()

    def _draw_bar(self) -> None:
        if self._is_terminal:
            done = min(1.0, self._tuples / max(1, self._n_tuples))
            filled = round(40 * done)
            self._out.write(f"{_CLEAR}{'█' * filled}{'░' * (40 - filled)} {done:4.0%}")
            self._out.flush()


def format_bytes(n: int) -> str:
    """Write a size in bytes with a unit.

    >>> format_bytes(1_234_567)
    '1.2 MB'
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} B"


def _format_line(cells: Iterable[str]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, _COLUMNS, strict=True))
