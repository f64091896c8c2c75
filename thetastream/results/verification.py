"""The answer of ``store.verify()``: what a store has, and all that is damaged."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verification:
    """What a store has, and all that is damaged.

    Parameters
    ----------
    entries : int
        The number of the newest entry of the log; -1 if the log has none that can be read.
    snapshots : int
        The number of snapshots that the store keeps.
    parts : int
        The number of files, or of parts in a database, that commits name.
    rows : int
        The number of rows that commits name.
    problems : tuple of str
        A sentence for everything that is damaged; empty if nothing is.

    Examples
    --------
    >>> Verification(entries=7, snapshots=2, parts=5, rows=100, problems=()).is_intact
    True
    """

    entries: int
    snapshots: int
    parts: int
    rows: int
    problems: tuple[str, ...]

    @property
    def is_intact(self) -> bool:
        """Whether nothing is damaged."""
        return not self.problems
