"""Changes of the control plan: a request begins a generation, and a generation ends when it holds nothing.

    apply_requests   offset, requests, drained units  ->  the next offset: plan and outcomes of requests
    change_plan      plan, request                    ->  the next plan, or a refusal that changes nothing
    end_generations  plan, drained units              ->  the next plan, without what holds nothing

Spark writes an offset to its log before it runs the epoch that reads it. Therefore an epoch that runs again
gets the plan that it had, and nothing outside the query chooses the epoch of a change. If each tuple must
meet all its partners at one unit, a request makes a generation *coming*, which takes over later
(``thetastream.runtime.control.handover``). A new generation reuses slots of live generations if units of both
may be one unit (``Model.shared_kind``). Otherwise it gets slots that no live generation has, so a slot always
belongs to one model.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.models.base import AUTO, Model, moves_tuples
from thetastream.runtime.control.handover import NOT_COUNTED, check_partners, take_over
from thetastream.runtime.control.plan import ControlPlan, Generation, Rules
from thetastream.runtime.control.policies import find_model_obstacle
from thetastream.runtime.control.request import Request
from thetastream.runtime.control.tasks import change_tasks, find_endless

LAST_OUTCOMES = 8
"""The number of requests whose outcome an offset keeps after their files have been removed."""
ACCEPTED = ""
"""The outcome of a request that was accepted. The outcome of a refused request is the text of its error."""


@dataclass(frozen=True)
class ControlOffset:
    """The plan that holds from the next epoch on, and the outcomes of requests by their names."""

    plan: ControlPlan
    outcomes: Mapping[str, str] = field(default_factory=dict)


def apply_requests(
    offset: ControlOffset,
    requests: Mapping[str, str | bytes],
    drained: Collection[tuple[int, int]],
    rules: Rules,
    arrived: Mapping[int, tuple[int, int]] = NOT_COUNTED,
) -> ControlOffset:
    """Apply new requests and drained units to the next offset; the same offset if nothing is new.

    Parameters
    ----------
    offset : ControlOffset
    requests : mapping of name to text
        The requests whose files exist. Requests that the offset knows already are not applied again. They are
        applied in the order of their names.
    drained : collection of (slot, version)
        The units that hold no tuples, with the version with which they left.
    rules : Rules
        What the query allows.
    arrived : mapping of version to (int, int)
        For a join with ordered results, how many tuples had arrived before a generation began to count.
    """
    plan = end_generations(offset.plan, drained, arrived)
    outcomes = dict(offset.outcomes)
    for name in sorted(requests):
        if name in offset.outcomes:
            continue
        try:
            plan = change_plan(plan, Request.read(requests[name]), rules, offset.plan.slots)
            outcomes[name] = ACCEPTED
        except ThetastreamError as refused:
            outcomes[name] = str(refused)
    plan = plan if plan is offset.plan else drop_needless(plan, offset.plan.version)
    if plan is offset.plan and len(outcomes) == len(offset.outcomes):
        return offset
    recent = list(outcomes)[-LAST_OUTCOMES:]
    kept = {name: outcome for name, outcome in outcomes.items() if name in recent or name in requests}
    return ControlOffset(plan, kept)


def change_plan(plan: ControlPlan, request: Request, rules: Rules, busy: Collection[int] = ()) -> ControlPlan:
    """Return the plan that a request asks for; the same plan if nothing changes.

    ``busy`` are the slots of the plan that routers follow until this one holds. A slot whose generation has
    just ended still gets tuples of that generation until then, so no unit of another model may join on it.

    Raises
    ------
    QueryError
        CANNOT_SCALE, MAX_UNITS, BAD_REQUEST, TASKS, MAX_TASKS, or the errors of the model.
    """
    model = find_target(plan.target.model, request)
    factor = plan.shed_factor if request.shed_factor is None else float(request.shed_factor)
    if factor and not rules.can_shed:
        what = "only a join that was started with shed=th.Shed(...) can drop tuples"
        raise QueryError("BAD_REQUEST", f"{what}, and this one was started without it")
    policy = plan.policy if request.policy is None else (request.policy or None)
    if policy is not None:
        _check_policy(str(policy["name"]), model)
    tasks = change_tasks(plan, request, rules.tasks)
    is_same = (factor, policy, tasks) == (plan.shed_factor, plan.policy, plan.tasks)
    if model == plan.target.model and is_same:
        return plan
    plan = replace(plan, shed_factor=factor, policy=policy, tasks=tasks)
    if model == plan.target.model:
        return plan.advance()
    plan = replace(plan, coming=None)  # The request takes the place of the one before.
    if model == plan.newest.model:
        return plan.advance()
    _check_model(plan.newest.model, model, rules)
    version = plan.version + 1
    newest = Generation(version, model, _assign_slots(plan, model, rules, busy))
    if rules.preserved or rules.is_ordered:
        return plan.advance(coming=newest)
    left = {slot: version for slot in plan.newest.slots if slot not in newest.slots}
    leaving = {slot: since for slot, since in {**plan.leaving, **left}.items() if slot not in newest.slots}
    _check_expiry(plan, leaving, rules)
    membership = (*plan.membership, newest)
    return plan.advance(membership=membership, leaving=leaving)


def end_generations(
    plan: ControlPlan,
    drained: Collection[tuple[int, int]],
    arrived: Mapping[int, tuple[int, int]] = NOT_COUNTED,
) -> ControlPlan:
    """Return the plan without the generations that hold no tuples; the same plan if there are none.

    ``drained`` has (slot, version with which it began to leave) for each leaving slot that holds no tuples,
    and the marks with which a coming generation takes over. ``arrived`` is that of ``take_over``.
    """
    taken = take_over(plan, drained, arrived)
    ended = _drop_ended(taken, drained)
    return taken if ended is taken else ended.advance()


def drop_needless(plan: ControlPlan, version: int) -> ControlPlan:
    """Return a plan that follows ``version``, the plan of the units, without needless generations.

    A generation that began and left since ``version`` never stores a tuple, because one epoch reads all
    requests that led to the plan. A generation is not needed either if the newest one has all its slots.
    """
    *older, newest = plan.membership
    begun = replace(plan, membership=(*(one for one in older if one.since <= version), newest))
    return _keep_leaving(_drop_ended(begun, ()))


def list_moving(generation: Generation, plan: ControlPlan, rules: Rules) -> set[tuple[int, int]]:
    """List the units of a generation that leave and move their tuples: (slot, version), as in their marks."""
    if not rules.moves_tuples:
        return set()
    moving = generation.slots if moves_tuples(plan.newest.model) else _list_endless(generation, rules)
    return {(slot, plan.leaving[slot]) for slot in moving if slot in plan.leaving}


def find_target(model: Model, request: Request) -> Model:
    """Return the model that a request asks for.

    Raises
    ------
    QueryError
        CANNOT_SCALE if the model has no such size, and the errors of the model.
    """
    model = model if request.model is None else request.model
    unknown = [name for name in request.sizes if name not in model.sizes]
    if unknown:
        what = f"can change {', '.join(model.sizes)}" if model.sizes else "cannot scale while it runs"
        raise QueryError("CANNOT_SCALE", f"{model!r} {what}, not {', '.join(unknown)}")
    try:
        return model.with_sizes(**request.sizes)
    except QueryError as error:
        kept = f"sizes change nothing else of {model!r}; to change more, name the whole new model"
        raise QueryError(error.condition, f"{error.message}; {kept}") from error


def _check_policy(name: str, model: Model) -> None:
    """Refuse a policy that changes what the model does not have."""
    obstacle = find_model_obstacle(name, model)
    if obstacle is not None:
        what = f"{obstacle}; only th.Biclique can"
        raise QueryError("CANNOT_SCALE", f"{what}. Call follow(None) to follow no policy")


def _check_model(before: Model, model: Model, rules: Rules) -> None:
    if rules.only_sizes:
        _check_sizes(before, model)
        return
    if not model.sizes or not model.runs_on_units:
        raise QueryError("CANNOT_SCALE", f"a join cannot become {model!r} while it runs")
    if (rules.counts_tuples or rules.is_ordered) and not model.sees_all:
        what = f"a join with a count window or ordered results cannot become {model!r}"
        raise QueryError("CANNOT_SCALE", f"{what}: its units do not see all tuples, and so cannot count them")
    if model.needs_places:
        found = rules.routings if model.needs_places == AUTO else (model.needs_places,)
        if not set(found) & set(rules.routings):
            raise QueryError(
                "CANNOT_SCALE",
                f"{model!r} routes by what the condition compares, and it has nothing to route by",
            )
    if moves_tuples(model) and not rules.moves_tuples:
        what = "units of this join cannot move tuples"
        raise QueryError("CANNOT_SCALE", f"{what}: ask for {replace(model, moves_tuples=False)!r}")  # type: ignore[type-var]
    check_partners(model, rules.preserved)


def _check_sizes(before: Model, model: Model) -> None:
    """Refuse a model that differs from the one before in more than its sizes."""
    sizes = {name: getattr(model, name, None) for name in before.sizes}
    if type(model) is not type(before) or replace(before, **sizes) != model:  # type: ignore[type-var]
        what = f"{before!r} cannot become {model!r} while it runs, because its units send messages"
        raise QueryError("CANNOT_SCALE", f"{what}; only {', '.join(before.sizes)} may change")


def _check_expiry(plan: ControlPlan, leaving: Collection[int], rules: Rules) -> None:
    """Refuse that a unit leaves whose tuples neither expire nor move, because it would never drain."""
    if rules.moves_tuples:
        return
    rules = replace(rules, never_expires=find_endless(plan.tasks, rules.never_expires))
    endless = [slot for generation in plan.membership for slot in _list_endless(generation, rules)]
    for slot in endless:
        if slot in leaving:
            raise QueryError(
                "CANNOT_SCALE",
                f"unit {slot} cannot leave: it stores tuples that stay joinable for ever (within=None), "
                "and tuples of this join do not move; only a biclique whose subgroups stay as many can grow",
            )


def _list_endless(generation: Generation, rules: Rules) -> list[int]:
    """List the slots of a generation on which tuples are stored that never expire."""
    return [
        slot
        for unit, slot in enumerate(generation.slots)
        if any(rules.never_expires[side] for side in generation.model.stores(unit))
    ]


def _assign_slots(plan: ControlPlan, model: Model, rules: Rules, busy: Collection[int]) -> tuple[int, ...]:
    """Assign a slot to each unit of a new generation."""
    if model.n_units > rules.max_units:
        raise QueryError("MAX_UNITS", f"{model!r} has more units than max_units={rules.max_units} allows")
    reusable: dict[str, list[int]] = {}
    for generation in reversed(plan.membership):
        for unit, slot in enumerate(generation.slots):
            kind = generation.model.shared_kind(unit)
            if kind is not None and slot not in reusable.setdefault(kind, []):
                reusable[kind].append(slot)
    assigned: list[int | None] = []
    for unit in range(model.n_units):
        slots = reusable.get(model.shared_kind(unit) or "", [])
        assigned.append(slots.pop(0) if slots else None)
    taken = {*plan.slots, *busy}
    free = [slot for slot in range(rules.max_units) if slot not in taken]
    n_new = assigned.count(None)
    if n_new > len(free):
        raise QueryError(
            "MAX_UNITS",
            f"{model!r} needs {n_new} more unit(s), and {len(free)} of max_units={rules.max_units} are free: "
            "wait until older generations have ended, or start the query again with a larger max_units",
        )
    fresh = iter(free)
    return tuple(next(fresh) if slot is None else slot for slot in assigned)


def _drop_ended(plan: ControlPlan, drained: Collection[tuple[int, int]]) -> ControlPlan:
    """Drop the generations whose slots have drained, or are reused by the newest generation."""
    empty = {slot for slot, version in drained if plan.leaving.get(slot) == version}
    *older, newest = plan.membership
    alive = [one for one in older if not set(one.slots) <= empty | set(newest.slots)]
    if len(alive) == len(older):
        return plan
    return _keep_leaving(replace(plan, membership=(*alive, newest)))


def _keep_leaving(plan: ControlPlan) -> ControlPlan:
    """Forget the slots that have left with their generation."""
    leaving = {
        slot: since
        for slot, since in plan.leaving.items()
        if slot in {slot for one in plan.membership for slot in one.slots}
    }
    return replace(plan, leaving=leaving)
