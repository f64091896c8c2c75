"""Limits of what clients may ask of a service."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    Parameters
    ----------
    rows : int
        The largest number of rows of one answer. The service refuses an answer with more rows; it never
        returns a part of the rows.
    seconds : float
        The longest time of one question.
    memory : str
        The memory of all questions together, as DuckDB writes it.
    questions : int
        The largest number of questions that run at the same time. Other questions wait.
    subscribers : int
        The largest number of subscribers of the service.
    subscribers_per_client : int
        The largest number of subscribers from one address.

    Examples
    --------
    >>> Limits(rows=1000).seconds
    30.0
    """

    rows: int = 100_000
    seconds: float = 30.0
    memory: str = "1GB"
    questions: int = 4
    subscribers: int = 1000
    subscribers_per_client: int = 100
