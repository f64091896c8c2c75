"""What one client may ask of a service."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    Parameters
    ----------
    rows : int
        The largest number of rows of one answer. A larger answer is refused and never cut.
    seconds : float
        The longest time of one question.
    memory : str
        The memory of all questions together, as DuckDB spells it.
    questions : int
        The number of questions that run at once. Others wait.
    subscribers : int
        The number of subscribers of the service.
    subscribers_per_client : int
        The number of subscribers from one address.

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
