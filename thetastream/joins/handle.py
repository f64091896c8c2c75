"""``th.control``: changes the units of a running join, from any process that reaches its control folder.

The newest offset of the control source (``thetastream.runtime.control.newest_offset``) says where the folder
is, and which plan holds.

A follower: it reads the load of a running join after each epoch, and asks for what a policy decides.
"""

import json
import logging
from pathlib import Path
from threading import Event, Thread
from typing import Any, Protocol

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.folder import hide_secrets
from thetastream.models.base import Model
from thetastream.runtime.control.change import change_plan, list_moving
from thetastream.runtime.control.newest_offset import NewestOffset, read_checkpoint, wait_for_progress
from thetastream.runtime.control.plan import ControlPlan
from thetastream.runtime.control.policies import Policy
from thetastream.runtime.control.policies.load import LoadReader
from thetastream.runtime.control.request import Request
from thetastream.spark.observe.metrics import list_epochs, metrics, refuse_no_query


class Scalable(Protocol):
    """The methods of a handle that a follower needs."""

    @property
    def plan(self) -> ControlPlan:
        """The newest plan."""

    def scale(self, model: Model) -> str:
        """Ask for other units."""


class Follower:
    """A thread that follows a policy until the query ends. ``th.control(query).follow(policy)`` starts it.

    A change needs this process only while it is asked for. If the process ends, the query keeps its units.
    """

    def __init__(self, handle: Scalable, query: Any, join: str, policy: Policy) -> None:
        self._handle, self._query, self._join = handle, query, join
        self._decider, self._reader = policy.begin(), LoadReader()
        self._epoch = -1
        self._is_stopped = Event()
        self.requests: list[Model] = []
        """The models that the policy has asked for, and that were not refused."""
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
                self._ask(plan.newest.model.resized(sizes))

    def _ask(self, model: Model) -> None:
        try:
            self._handle.scale(model)
            self.requests.append(model)
            _LOG.info("the policy asks for %r", model)
        except ThetastreamError as refused:
            self.refused.append(refused)
            _LOG.warning("a request of the policy for %r is refused: %s", model, refused)


class ControlHandle:
    """A handle on a join that runs with ``max_units``. ``th.control`` makes it."""

    def __init__(self, target: Any, join: str | None = None) -> None:
        self._target = target
        self._join = join
        self._find()

    def scale(self, model: Model | None = None, **sizes: int | tuple[int | tuple[int, ...], ...]) -> str:
        """Ask for other units. The change takes effect in the second epoch from now, and nothing restarts.

        If each tuple is answered (``how=``), the new units take over when a window has passed. In an ordered
        join, they take over after a few epochs.

        New tuples are stored by the new units. Older units answer until the tuples that they hold have left
        the window. Tuples that never expire move to the new units, some of them in each epoch. No result is
        lost or found twice. If the query does not run, the request waits until it runs again.

        Parameters
        ----------
        model : Model, optional
            Another model of two streams, such as ``th.Matrix(2, 2)``.
        sizes
            New sizes of the model: ``units`` and ``subgroups`` of ``th.Biclique``, ``cores`` of ``th.Split``,
            ``rows`` and ``columns`` of ``th.Matrix``, ``nodes`` of ``th.Ring``.

        Returns
        -------
        str
            The name of the request, by which ``status()["requests"]`` says what became of it.

        Raises
        ------
        QueryError
            CANNOT_SCALE, MAX_UNITS or BAD_REQUEST, or an error of the model. Then nothing has changed.

        Examples
        --------
        >>> import thetastream as th
        >>> th.control(query).scale(units=(4, 2))  # doctest: +SKIP
        """
        if model is None and not sizes:
            raise QueryError("BAD_REQUEST", "scale must name a size or a model, as in scale(units=(4, 2))")
        return self.request(Request(sizes, model))

    def shed(self, factor: float) -> str:
        """Ask the load shedder to drop at least this share of the tuples, until another request.

        Parameters
        ----------
        factor : float
            A share from 0 to 1. 0 leaves it to the load.

        Returns
        -------
        str
            The name of the request.

        Raises
        ------
        QueryError
            BAD_REQUEST if the join has no load shedder (``shed=``), or the share is not from 0 to 1.

        Examples
        --------
        >>> import thetastream as th
        >>> th.control(query).shed(0.5)  # doctest: +SKIP
        """
        return self.request(Request(shed_factor=factor))

    def follow(self, policy: Policy) -> Follower:
        """Follow a policy: after each epoch, ask for the units that it decides on, until the query ends.

        The policy runs in a thread of this process.

        Parameters
        ----------
        policy : Policy
            For example ``th.TwoPhaseScaling(capacity="1.5 GB")``.

        Returns
        -------
        Follower
            It has ``stop()``, ``is_following``, ``requests`` (the models that the policy has asked for) and
            ``refused`` (the errors of requests that were refused).

        Raises
        ------
        QueryError
            POLICY if this is no policy, if the query has ended, or if the handle was made from a checkpoint:
            a policy needs the progress of a query that runs in this process.

        Examples
        --------
        >>> import thetastream as th
        >>> th.control(query).follow(th.TwoPhaseScaling(capacity="1.5 GB"))  # doctest: +SKIP
        """
        if not hasattr(policy, "begin"):
            raise QueryError("POLICY", f"follow needs a policy such as th.TwoPhaseScaling(), not {policy!r}")
        if isinstance(self._target, str | Path):
            raise QueryError(
                "POLICY", "follow needs the running query, as in th.control(query), not its checkpoint"
            )
        if not self._target.isActive:
            raise QueryError("POLICY", f"follow needs a running query, and query {self._target.id} has ended")
        return Follower(self, self._target, str(self._find().control["join"]), policy)

    @property
    def plan(self) -> ControlPlan:
        """The newest plan."""
        return self._find().plan

    def request(self, request: Request) -> str:
        """Put a request, after checking it against the newest plan; return its name."""
        found = self._find()
        change_plan(found.plan, request, found.rules)
        return found.folder.put_request(request.write())

    def status(self) -> dict[str, Any]:
        """Return the plan of the newest epoch, and what became of the last requests.

        Returns
        -------
        dict
            ``version``, the number of changes so far; ``max_units``; ``shed_factor``; ``requests``, which
            maps the name of each of the last requests to "accepted", "waiting" or the error that refused it;
            and ``generations``, oldest first. A generation has its ``model``, its ``units`` (slots), the
            epoch ``since`` which its units store tuples (None if that epoch has not begun), ``leaving`` (the
            units that store no new tuples), ``moving`` (those of them whose tuples move to newer units),
            ``drained`` (those of them that hold none) and ``held``, the number of stored tuples (None if the
            query does not run in this process). ``coming`` is the generation that takes over later, if each
            tuple is answered at one unit (``how=``); None if there is none. It has its ``model``, ``units``,
            ``since``, the epoch from which these units store copies, and ``waits_for``: the units that still
            hold tuples without a copy.
        """
        found = self._find()
        plan, folder, rules = found.plan, found.folder, found.rules
        coming = plan.coming
        beginnings = folder.find_beginnings(one.since for one in (*plan.membership, plan.target))
        marks, held = folder.list_drained(), self._count_held()
        outcomes = {name: outcome or "accepted" for name, outcome in found.control["outcomes"].items()}
        waiting = {name: "waiting" for name in folder.list_requests() if name not in outcomes}
        generations = [
            {
                "model": repr(one.model),
                "units": list(one.slots),
                "since": beginnings.get(one.since, (None,))[0] if one.since else 0,
                "leaving": [slot for slot in one.slots if slot in plan.leaving],
                "moving": sorted(slot for slot, _ in list_moving(one, plan, rules) - marks),
                "drained": [slot for slot in one.slots if (slot, plan.leaving.get(slot)) in marks],
                "held": None if held is None else sum(held.get(slot, 0) for slot in one.slots),
            }
            for one in plan.membership
        ]
        return {
            "version": plan.version,
            "max_units": rules.max_units,
            "shed_factor": plan.shed_factor,
            "generations": generations,
            "coming": None
            if coming is None
            else {
                "model": repr(coming.model),
                "units": list(coming.slots),
                "since": beginnings.get(coming.since, (None,))[0],
                "waits_for": [slot for slot in plan.newest.slots if (slot, coming.since) not in marks],
            },
            "requests": {**outcomes, **waiting},
        }

    def _count_held(self) -> dict[int, int] | None:
        """Count the stored tuples of each unit; None if the query does not run in this process."""
        if isinstance(self._target, str | Path):
            return None
        join = self._find().control["join"]
        epochs = [epoch for epoch in metrics(self._target) if epoch["join"] == join and epoch["units"]]
        return {unit["unit"]: unit["held"] for unit in epochs[-1]["units"]} if epochs else {}

    def _find(self) -> NewestOffset:
        """Find the newest offset of the control source."""
        if isinstance(self._target, str | Path):
            path = str(self._target)
            where, offsets = f"the checkpoint {hide_secrets(path)}", read_checkpoint(path)
        else:
            refuse_no_query("th.control", self._target)
            where, offsets = f"query {self._target.id}", list(wait_for_progress(self._target))
        joins = {offset["control"]["join"]: offset["control"] for offset in offsets if "control" in offset}
        if not joins:
            raise QueryError(
                "NOT_CONTROLLED",
                f"{where} must have a join with max_units, and it has none; start it with max_units, also "
                "from its present checkpoint",
            )
        if self._join in joins:
            return NewestOffset(joins[self._join])
        if self._join is not None or len(joins) > 1:
            asked = "" if self._join is None else f", and none of them is {self._join!r}"
            raise QueryError(
                "SEVERAL_JOINS",
                f"{where} has the joins {', '.join(joins)}{asked}; give join= as one of them",
            )
        return NewestOffset(next(iter(joins.values())))


def control(query: Any, join: str | None = None) -> ControlHandle:
    """Control a join that runs with ``max_units``: change its units without a restart, and see its plan.

    Parameters
    ----------
    query : StreamingQuery, str or Path
        A running query, or the checkpoint of a query that runs anywhere, as a path or URI. This process must
        reach the folder of mailboxes (``mailbox=``) of the query.
    join : str, optional
        The name of the join (``join`` in ``th.metrics``), if the query has several with ``max_units``.

    Raises
    ------
    QueryError
        NOT_CONTROLLED if the query has no join with ``max_units``. SEVERAL_JOINS if ``join`` names none of
        its joins, or is left out and there are several.
    ThetastreamError
        NO_CHECKPOINT if the folder is not the checkpoint of a streaming query.

    Examples
    --------
    >>> import thetastream as th
    >>> handle = th.control("out/checkpoint")  # doctest: +SKIP
    >>> handle.scale(units=(4, 2))  # doctest: +SKIP
    >>> handle.status()["generations"]  # doctest: +SKIP
    """
    return ControlHandle(query, join)


POLL_S = 0.2
"""How often the progress of the query is read, in seconds. Epochs take longer."""
_LOG = logging.getLogger("thetastream")
