"""A follower: it reads the load of a running join after each epoch, and asks for what a policy decides."""

import json
import logging
from threading import Event, Thread
from typing import Any, Protocol

from thetastream.control.load import LoadReader
from thetastream.control.plan import ControlPlan
from thetastream.control.policies import Policy
from thetastream.errors import ThetastreamError
from thetastream.spark.metrics import list_epochs

POLL_S = 0.2
"""How often the progress of the query is read, in seconds. Epochs take longer."""
_LOG = logging.getLogger("thetastream")


class Scalable(Protocol):
    """The methods of a handle that a follower needs."""

    @property
    def plan(self) -> ControlPlan:
        """The newest plan."""

    def scale(self, **sizes: Any) -> str:
        """Ask for other sizes."""


class Follower:
    """A thread that follows a policy until the query ends. ``th.control(query).follow(policy)`` starts it.

    A change needs this process only while it is asked for. If the process ends, the query keeps its units.
    """

    def __init__(self, handle: Scalable, query: Any, join: str, policy: Policy) -> None:
        self._handle, self._query, self._join = handle, query, join
        self._decider, self._reader = policy.begin(), LoadReader()
        self._epoch = -1
        self._is_stopped = Event()
        self.requests: list[dict[str, Any]] = []
        """The sizes that the policy has asked for, and that were not refused."""
        self.refused: list[ThetastreamError] = []
        """Why requests of the policy were refused, for example because ``max_units`` is reached."""
        self._thread = Thread(target=self._follow, name=f"thetastream-policy-{join}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop following the policy. The units stay as they are."""
        self._is_stopped.set()
        self._thread.join()

    @property
    def is_following(self) -> bool:
        """Whether the policy is still followed."""
        return self._thread.is_alive()

    def _follow(self) -> None:
        while not self._is_stopped.wait(POLL_S) and self._query.isActive:
            try:
                self.look()
            except Exception:
                if self._query.isActive:  # Reading the progress fails while a query ends.
                    _LOG.exception("following a policy failed; it is tried again")

    def look(self) -> None:
        """Read the newest epoch of the query, if it is new, and ask for what the policy decides."""
        report = self._query.lastProgress
        if not report:
            return
        report = report if isinstance(report, dict) else json.loads(report.json)
        for entry in list_epochs(report):
            if entry["join"] != self._join or entry["epoch"] <= self._epoch or not entry["units"]:
                continue
            plan = self._handle.plan
            self._epoch = entry["epoch"]
            sizes = self._decider.decide(self._reader.read(entry, plan))
            # The present units have all the load until a coming generation takes over.
            if sizes is not None and plan.coming is None:
                self._ask(plan.newest.model.spell_sizes(sizes))

    def _ask(self, sizes: dict[str, Any]) -> None:
        try:
            self._handle.scale(**sizes)
            self.requests.append(sizes)
            _LOG.info("the policy asks for %s", sizes)
        except ThetastreamError as refused:
            self.refused.append(refused)
            _LOG.warning("a request of the policy for %s is refused: %s", sizes, refused)
