"""Chooses the model of a join: the one that the user names, or the cheapest.

If the user names none, it is the default model unless another one costs much less. The choice depends only
on the query, the number of partitions and the given statistics. A query that is started again has the
partitions of its checkpoint, and so it has the same model. The statistics of a running query change: on
restart, pass the statistics with which the query first started, or name the model.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from thetastream.core.errors import QueryError, raise_problems
from thetastream.core.shed import Shed
from thetastream.engine.routing import sends_probes_apart
from thetastream.engine.two_stream.content_routing import Placing, choose_placing, find_placing
from thetastream.families.changes import find_scaling_problem, find_state_problem
from thetastream.families.pairs.cost import Estimate, estimate
from thetastream.families.pairs.workload import Workload, build_workload
from thetastream.families.request import JoinRequest
from thetastream.lowering.lower import Lowered
from thetastream.lowering.query import Query
from thetastream.lowering.statistics import Statistics, choose_n_units
from thetastream.models import REGISTRY
from thetastream.models.base import Model
from thetastream.models.biclique import Biclique
from thetastream.models.multiway import Multiway

Choose = Callable[[int], Any]
"""A picklable function from a number of shuffle partitions to the model that the planner chooses for it."""
MARGIN = 0.8
"""Another model is chosen only if it costs less than this share of the default model's cost.
Smaller differences are within the error of the estimates."""
ALIKE = 0.95
"""Costs whose ratio is above this count as equal in the reason that explain shows."""
MOST_UNEVEN = 1.25
"""Maximum load imbalance caused by the heaviest key: the load of a side's fullest unit over the mean load."""


def build_default_model(partitions: int) -> Biclique:
    """Build the default model: a biclique with equal sides that fills the partitions.

    It runs any condition and stores each tuple once.

    >>> build_default_model(4), build_default_model(200).n_units
    (Biclique(units=(2, 2)), 32)
    """
    return Biclique(units=choose_n_units(partitions) // 2)


def choose_subgroups(units: int, work: Workload) -> int:
    """Choose the number of subgroups of a side: as many as its heaviest key allows.

    A side has m units in d subgroups. The m / d units of the heaviest key's subgroup store the share p of
    that key and (1 - p) / d of the rest. So each of them stores 1 + p (d - 1) times the mean, and d is at
    most 1 + (MOST_UNEVEN - 1) / p. Each additional subgroup saves probes. If p is not known, a subgroup has
    at least two units, so that no key depends on a single unit. Bands are then not routed by range, since all
    their keys may lie in a few ranges.

    >>> from thetastream.index import Hash
    >>> from thetastream.families.pairs.workload import Inflow
    >>> flow = Inflow("a", 1000, 60, 50, 40, 10)
    >>> [choose_subgroups(m, Workload((flow, flow), Hash(), None, 0.15, "hash")) for m in (1, 2, 4, 16)]
    [1, 1, 2, 2]
    """
    if work.content is None or (work.content == "range" and not work.skew_is_known):
        return 1
    most = units if work.skew_is_known else units // 2
    more = (MOST_UNEVEN - 1) / work.heaviest_key + 1e-9 if work.heaviest_key else units
    even = 1 + int(min(units, more))
    return max(1, min(most, even))


def find_arrival_problem(model: Model, is_counted: bool, is_ordered: bool) -> QueryError | None:
    """Return an error if the query needs the order of arrival and the model does not keep it, else None."""
    needs = " and ".join(["count windows"] * is_counted + ["ordered results"] * is_ordered)
    if not needs or model.sees_all:
        return None
    what = f"{needs} need the order of arrival, which {model!r} does not keep"
    return QueryError("SPLIT_NEEDED", f"{what}; use th.Split(cores), or leave model out")


def find_partners_problem(model: Model, lowered: Lowered) -> QueryError | None:
    """Return an error if a model does not show a preserved tuple all its partners at one unit, else None."""
    how = lowered.physical.how
    if all(map(model.sees_partners, how.preserved)):
        return None
    both = "th.Matrix(1, 1)"
    if lowered.physical.condition.equalities:
        both = 'th.Matrix(n, 1, subgroups=n, routing="hash")'
    fits = {"left": "th.Matrix(n, 1)", "right": "th.Matrix(1, n)", "full": both}
    return QueryError(
        "PARTNERS_APART",
        f"how={how.name!r} needs all partners of a tuple at one unit, and {model!r} finds them at several; "
        f"use {fits.get(how.name, fits['left'])}, or leave model out",
    )


def find_refusal(model: Model, lowered: Lowered, is_ordered: bool = False) -> QueryError | None:
    """Return an error that says why a model cannot run a query, or None if it can."""
    problem = find_arrival_problem(model, lowered.physical.counts is not None, is_ordered)
    problem = problem or find_partners_problem(model, lowered) or find_state_problem(model, lowered)
    if problem is not None:
        return problem
    try:
        choose_placing(model, lowered.physical.condition)
    except QueryError as refused:
        return refused
    return None


def list_variants(name: str, units: int, work: Workload) -> Iterator[Model]:
    """Yield every variant of a registered model with that many units.

    >>> from thetastream.index import Scan
    >>> from thetastream.families.pairs.workload import Inflow
    >>> flow = Inflow("a", 1000, 60, 50, 40, 10)
    >>> list(list_variants("matrix", 4, Workload((flow, flow), Scan(), None, 0)))
    [Matrix(rows=1, columns=4), Matrix(rows=2, columns=2), Matrix(rows=4, columns=1)]
    """
    needs_partners = work.needs_partners and work.content is not None
    yield from REGISTRY[name].variants(units, lambda n: choose_subgroups(n, work), needs_partners)


def list_comparable() -> list[str]:
    """List the models that the planner compares. Each other model runs only if a query names it.

    >>> list_comparable()
    ['biclique', 'matrix', 'split']
    """
    return sorted(name for name, kind in REGISTRY.items() if any(kind.variants(2, lambda units: 1)))


def compare(
    work: Workload,
    partitions: int,
    can_run: Callable[[Model], bool] = lambda model: True,
    n_units: int | None = None,
) -> list[Estimate]:
    """Estimate the cheapest runnable variant of every model for two streams, and sort them by cost.

    They have ``n_units`` units, by default as many as fill the partitions.
    """
    for units in (n_units or choose_n_units(partitions), 1):
        best = []
        for name in REGISTRY:
            found = [
                estimate(model, work, partitions)
                for model in list_variants(name, units, work)
                if can_run(model)
            ]
            if found:
                best.append(min(found, key=_get_cost))
        if best:
            break  # a single unit runs every join, but only if no other number of units does
    return sorted(best, key=_get_cost)


def choose(
    work: Workload, partitions: int, can_run: Callable[[Model], bool] = lambda model: True
) -> tuple[Model, str]:
    """Return the model to run and the reason.

    Parameters
    ----------
    work : Workload
        The workload of the query (``thetastream.families.pairs.workload``).
    partitions : int
        The value of ``spark.sql.shuffle.partitions`` in the session.
    can_run : callable
        It returns whether a model can run the query.
    """
    compared = compare(work, partitions, can_run)
    cheapest, model = compared[0], build_default_model(partitions)
    if not can_run(model):
        return cheapest.model, f"the cheapest that can run this {_format_partitions(partitions)}"
    cost = estimate(model, work, partitions).cost
    if cheapest.cost < MARGIN * cost:
        part = _format_percent(cheapest.cost, cost)
        return cheapest.model, f"costs {part} of {model!r} {_format_partitions(partitions)}"
    if cheapest.model != model and cheapest.cost < ALIKE * cost:
        part = _format_percent(cheapest.cost, cost)
        return model, (
            f"runs any condition and stores tuples once; {cheapest.model!r} would cost {part} of it, "
            f"and the margin is {MARGIN:.0%} {_format_partitions(partitions)}"
        )
    return model, f"the cheapest {_format_partitions(partitions)}"


@dataclass(frozen=True)
class ModelChoice:
    """The choice of a model, as a function of the number of shuffle partitions. Picklable."""

    work: Workload
    lowered: Lowered
    is_ordered: bool
    needs_probes_apart: bool = False
    """Whether the model must send what is stored and what probes apart."""

    def __call__(self, partitions: int) -> Model:
        """Choose the model for a number of partitions."""
        return self.explain(partitions)[0]

    def explain(self, partitions: int) -> tuple[Model, str]:
        """Return the model for a number of partitions, and the reason."""
        return choose(self.work, partitions, self._can_run)

    def find_better(self, now: Model, partitions: int, factor: float) -> Model | None:
        """Return the cheapest model with as many units; None unless ``now`` costs ``factor`` times it."""
        best = compare(self.work, partitions, self._can_run, now.n_units)[0]
        is_better = estimate(now, self.work, partitions).cost >= factor * best.cost
        return best.model if is_better and best.model != now else None

    def _can_run(self, model: Model) -> bool:
        if self.needs_probes_apart and not sends_probes_apart(model):
            return False
        return find_refusal(model, self.lowered, self.is_ordered) is None


@dataclass(frozen=True)
class SizeChoice:
    """The choice of the number of units of a model, as a function of the number of shuffle partitions.

    Picklable.
    """

    model: Model

    def __call__(self, partitions: int) -> Model:
        """Choose the number of units for a number of partitions."""
        assert isinstance(self.model, Multiway)  # other models have a number of units
        return self.model.with_nodes(choose_n_units(partitions))


def _get_cost(estimated: Estimate) -> float:
    return estimated.cost


def _format_percent(cost: float, whole: float) -> str:
    return f"{cost / whole:.0%}" if whole else "0%"


def _format_partitions(partitions: int) -> str:
    return f"on {partitions} shuffle partition{'s' * (partitions != 1)}"


class ChosenModel(NamedTuple):
    """The model that runs a query."""

    model: Model
    reason: str
    """Why it runs, as words for ``explain``."""
    choose: Choose | None
    """How it follows from the number of shuffle partitions; None if the user set the model completely."""


def choose_model(
    request: JoinRequest, query: Query, lowered: Lowered, is_ordered: bool = False
) -> ChosenModel:
    """Choose the model of the request, or the cheapest one that can run the query."""
    model, shed = request.model, request.run.shed
    unfit = find_semantic_problem(shed, find_placing(lowered.physical.condition))
    fixed = find_scaling_problem(request, lowered)
    raise_problems([problem for problem in (unfit, fixed) if problem is not None])
    if model is None:
        work = build_workload(query, lowered, request.statistics or Statistics())
        needs_probes_apart = shed is not None and shed.sheds_probes
        choice = ModelChoice(work, lowered, is_ordered, needs_probes_apart)
        return ChosenModel(*choice.explain(request.partitions), choice)
    problem = find_refusal(model, lowered) or find_shed_problem(shed, model)
    raise_problems([] if problem is None else [problem])
    return ChosenModel(model, "as asked for", SizeChoice(model) if request.has_open_size else None)


def find_semantic_problem(shed: Shed | None, placing: Placing | None) -> QueryError | None:
    """Return an error if a semantic shedder cannot know the partners of a tuple, else None."""
    if shed is None or not shed.is_semantic or placing is not None:
        return None
    needs = "a join of two streams with an equality or a band of one width, as in abs(a.x - b.x) <= 3"
    return QueryError("SHED", f'kind="semantic" needs {needs}; use kind="random"')


def find_shed_problem(shed: Shed | None, model: Model) -> QueryError | None:
    """Return an error if the units of a model cannot drop what the shedder drops, else None."""
    if shed is None or not shed.sheds_probes or sends_probes_apart(model):
        return None
    return QueryError(
        "SHED",
        f'what="probes" needs a model that sends what is stored and what probes apart, and {model!r} sends '
        'them together; use th.Biclique, or what="tuples"',
    )
