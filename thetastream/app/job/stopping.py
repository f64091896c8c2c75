"""Says when a job has to stop: between two epochs, or at once.

a signal, or the time of the run is over      the running epoch ends, and then the job
one more signal, or the wait has been long    the job ends now, and its next run repeats the epoch
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from thetastream.core.errors import SessionError
from thetastream.spark.session.failure import wait_for_end
from thetastream.spark.session.jvm import ignore_sigterm

SIGNALS = (signal.SIGINT, signal.SIGTERM)
END_S = 30.0
"""How long the end of a JVM that was told to end may take, in seconds."""
SPARK_ENDED = (
    "Spark ended while this job waited for the running epoch, so the epoch is not finished. The next run "
    "repeats it, and no result is lost. A program that stops jobs should send SIGTERM, and kill what still "
    "runs only when an epoch would have ended"
)
CUT = "the job was stopped in the middle of an epoch. The next run repeats it, and no result is lost"


class StopRequests:
    """Requests that a job stops.

    Parameters
    ----------
    run_s : float or None
        How long the job runs after ``begin`` if nobody asks it to stop, in seconds.
    wait_s : float or None
        How long a job that has to stop waits for the running epoch, in seconds. None means until it ends.
    read_clock : callable
        Returns the present time in seconds.

    Examples
    --------
    >>> clock = iter([0.0, 10.0, 50.0, 70.0])
    >>> requests = StopRequests(None, 30.0, lambda: next(clock))
    >>> requests.add(), requests.must_stop(), requests.must_stop_now(), requests.must_stop_now()
    (None, True, False, True)
    """

    def __init__(
        self, run_s: float | None, wait_s: float | None, read_clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read_clock, self._run_s, self._wait_s = read_clock, run_s, wait_s
        self._since: float | None = None
        self.n_signals = 0

    def begin(self) -> None:
        """Begin to count the time of the run, when all is planned."""
        if self._run_s is not None and self._since is None:
            self._since = self._read_clock() + self._run_s

    def add(self, number: int = signal.SIGTERM, frame: FrameType | None = None) -> None:
        """Add a request. This is a handler of signals."""
        self.n_signals += 1
        if self.n_signals == 1:
            self._since = self._read_clock()

    def must_stop(self) -> bool:
        """Whether the job has to stop when the running epoch has ended."""
        return self.n_signals > 0 or (self._since is not None and self._read_clock() >= self._since)

    def must_stop_now(self) -> bool:
        """Whether the job has to stop in the middle of an epoch."""
        if self.n_signals > 1:
            return True
        is_limited = self._since is not None and self._wait_s is not None
        return is_limited and self._read_clock() >= (self._since or 0.0) + (self._wait_s or 0.0)

    def describe_wait(self) -> str:
        """Describe what happens now, for the user who has sent the signal.

        >>> StopRequests(None, 90).describe_wait()
        'the job stops when the running epoch has ended, or in 90 s. One more signal stops it at once'
        """
        limit = "" if self._wait_s is None else f", or in {self._wait_s:g} s"
        return f"the job stops when the running epoch has ended{limit}. One more signal stops it at once"


@contextmanager
def catch_signals(run_s: float | None, wait_s: float | None) -> Iterator[StopRequests]:
    """Let SIGINT and SIGTERM be requests inside this block. They do not end the program, nor its Spark.

    Raises
    ------
    SessionError
        SPARK_ENDED if the JVM has ended after a request.
    """
    requests = StopRequests(run_s, wait_s)
    before = {number: signal.signal(number, requests.add) for number in SIGNALS}
    ignore_sigterm()
    try:
        yield requests
    except (PySparkException, Py4JError, ConnectionError):
        if requests.n_signals and wait_for_end(END_S) is not None:
            raise SessionError("SPARK_ENDED", SPARK_ENDED) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
