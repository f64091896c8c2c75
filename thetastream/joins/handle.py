"""``th.control``: changes the units of a running join, from any process that reaches its control folder.

The newest offset of the control source (``thetastream.runtime.control.newest_offset``) says where the folder
is, and which plan holds.
"""

from pathlib import Path
from typing import Any

from thetastream.core.addresses import hide_secrets
from thetastream.core.arguments import refuse_non_number, refuse_non_text
from thetastream.core.errors import QueryError
from thetastream.core.html import render_facts, render_rows
from thetastream.models import Biclique
from thetastream.models.base import Model
from thetastream.runtime.control.balance import measure_capacities
from thetastream.runtime.control.newest_offset import (
    NewestOffset,
    find_join,
    read_checkpoint,
    wait_for_progress,
)
from thetastream.runtime.control.plan import ControlPlan
from thetastream.runtime.control.policies import Policy, encode_policy
from thetastream.runtime.control.request import NO_POLICY, Request
from thetastream.spark.observe.metrics import metrics, refuse_no_query

BALANCED_EPOCHS = 20
"""How many of the last epochs with tuples ``ControlHandle.balance`` reads."""


class ControlHandle:
    """A handle on a join that runs with ``max_units``. ``th.control`` makes it."""

    def __init__(self, target: Any, join: str | None = None) -> None:
        self._target = target
        self._join = join
        self._find()

    def scale(self, model: Model | None = None, **sizes: int | tuple[float | tuple[int, ...], ...]) -> str:
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
            New sizes of the model: ``units``, ``subgroups`` and ``capacities`` of ``th.Biclique``, ``cores``
            of ``th.Split``, ``rows`` and ``columns`` of ``th.Matrix``, ``nodes`` of ``th.Ring``.

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

    def balance(self, factor: float = 1.2) -> tuple[float, ...] | None:
        """Measure how strong the units of a biclique are, and ask for shares in proportion.

        Some units may be on a slower machine, or on a core that others use too. They then work longer than
        others with as many tuples, and epochs wait for them. This divides what each unit holds by the time
        that it works, and asks for these ``capacities``. No stored tuple moves: shares of new tuples change,
        and what units hold follows over the length of a window. Call it from time to time, in the process of
        the query. Other units (``scale``, ``follow``) are equally strong until it is called again.

        Parameters
        ----------
        factor : float
            Nothing is asked for if no unit works more than so many times as long as the mean of the units of
            its subgroup.

        Returns
        -------
        tuple of float or None
            The capacities that were asked for; None if the units work equally long.

        Raises
        ------
        QueryError
            CANNOT_SCALE if the model is no biclique. BAD_REQUEST if ``factor`` is less than 1, or this handle
            has a checkpoint and not a running query. NOTHING_MEASURED if a unit has not worked yet.

        Examples
        --------
        >>> import thetastream as th
        >>> th.control(query).balance()  # doctest: +SKIP
        """
        refuse_non_number(factor, "factor", 1, condition="BAD_REQUEST")
        if isinstance(self._target, str | Path):
            what = "balance needs the running query, because a checkpoint does not have its counters"
            raise QueryError("BAD_REQUEST", f"{what}; call th.control(query).balance() in its process")
        newest = self.plan.target
        if not isinstance(newest.model, Biclique):
            what = f"units of {newest.model!r} cannot have shares of different sizes"
            raise QueryError("CANNOT_SCALE", f"{what}; only those of th.Biclique can")
        join = self.name
        epochs = [one for one in metrics(self._target) if one["join"] == join and one["left"] + one["right"]]
        found = measure_capacities(newest.model, newest.slots, epochs[-BALANCED_EPOCHS:], factor)
        if found is not None:
            self.scale(capacities=found)
        return found

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

    def follow(self, policy: Policy | None) -> str:
        """Follow a policy: after each epoch, the query asks for the units that the policy decides on.

        The query itself follows the policy, from the second epoch on. Its checkpoint remembers the policy, so
        a query that starts again goes on following it. No process beside the query is needed.
        ``status()["requests"]`` says what the policy has asked for, and why something was refused.

        Parameters
        ----------
        policy : Policy or None
            ``th.TwoPhaseScaling(capacity="1.5 GB")``, for example, changes the number of units, and
            ``th.LoadBalancing()`` their shares. It takes the place of the policy before.
            With None, no policy is followed any more, and the units stay as they are.

        Returns
        -------
        str
            The name of the request.

        Raises
        ------
        QueryError
            POLICY if this is no policy, or if no process could make it again from its name.
            CANNOT_SCALE if the policy changes shares and the model is no biclique.

        Examples
        --------
        >>> import thetastream as th
        >>> th.control("out/checkpoint").follow(th.TwoPhaseScaling(capacity="1.5 GB"))  # doctest: +SKIP
        """
        return self.request(Request(policy=NO_POLICY if policy is None else encode_policy(policy)))

    @property
    def name(self) -> str:
        """The name of the join, as ``th.metrics`` has it."""
        return str(self._find().control["join"])

    @property
    def plan(self) -> ControlPlan:
        """The newest plan."""
        return self._find().plan

    def request(self, request: Request) -> str:
        """Put a request, after checking it against the newest plan; return its name."""
        return self._find().put(request)

    def status(self) -> dict[str, Any]:
        """Return the plan of the newest epoch, and what became of the last requests.

        Returns
        -------
        dict
            ``version``, the number of changes so far; ``max_units``; ``shed_factor``; ``policy``, the policy
            that is followed, as its name and its settings, or None; ``tasks``, the tasks of ``th.join_many``
            with ``max_tasks`` that run, or None: by name, the epoch ``since`` which each runs (None if that
            epoch has not begun), and the condition ``on`` of a task that was added (None for a task of the
            program); ``requests``, which maps the name of each
            of the last requests to "accepted", "waiting" or the error that refused it (those of the policy
            begin with "policy-", and the epoch follows);
            and ``generations``, oldest first. A generation has its ``model``, its ``units`` (slots), the
            epoch ``since`` which its units store tuples (None if that epoch has not begun), ``leaving`` (the
            units that store no new tuples), ``moving`` (those of them whose tuples move to newer units),
            ``drained`` (those of them that hold none) and ``held``, the number of stored tuples (None if the
            query does not run in this process). ``coming`` is the generation that takes over later, if each
            tuple is answered at one unit (``how=``); None if there is none. It has its ``model``, ``units``,
            ``since``, the epoch from which these units store copies, and ``waits_for``: the units that still
            hold tuples without a copy.
        """
        return self._find().describe(self._count_held())

    def _repr_html_(self) -> str:
        """Return what notebooks show: the generations of units, and the last requests."""
        status = self.status()
        facts = {name: status[name] for name in ("version", "max_units", "shed_factor", "policy")}
        rows = [
            (one["model"], len(one["units"]), one["since"], len(one["leaving"]), one["held"])
            for one in status["generations"]
        ]
        generations = render_rows(("model", "units", "since epoch", "leaving", "stored tuples"), rows)
        requests = render_rows(("request", "what became of it"), status["requests"].items())
        return render_facts(f"Join {self.name}", facts) + generations + requests

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
        return find_join(offsets, self._join, where)


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
        NOT_CONTROLLED if the query has no join with ``max_units`` or ``max_tasks``. SEVERAL_JOINS if
        ``join`` names none of its joins, or is left out and there are several. BAD_VALUE if it is no text.
    ThetastreamError
        NO_CHECKPOINT if the folder is not the checkpoint of a streaming query.

    Examples
    --------
    >>> import thetastream as th
    >>> handle = th.control("out/checkpoint")  # doctest: +SKIP
    >>> handle.scale(units=(4, 2))  # doctest: +SKIP
    >>> handle.status()["generations"]  # doctest: +SKIP
    """
    if join is not None:
        refuse_non_text(join, "join", 'join="prices"')
    return ControlHandle(query, join)
