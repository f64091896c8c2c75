"""Which model runs a join when none is named: the cheapest, or the usual one if that costs little more.

The choice is a function of the query, the session's partitions and the statistics given, so that a query
started again finds its checkpoint's model. Statistics of a running query change: pass the ones it began with.
"""

from collections.abc import Callable, Iterator

from thetastream.errors import QueryError
from thetastream.joiner.placing import placing
from thetastream.models import REGISTRY
from thetastream.models.base import Model
from thetastream.models.biclique import Biclique
from thetastream.models.matrix import Matrix
from thetastream.models.multiway import Multiway
from thetastream.plan.cost import Estimate, estimate
from thetastream.plan.lower import Lowered
from thetastream.plan.workload import Workload

MOST_CHOSEN = 32
MARGIN = 0.8
"""Another model must cost less than this part of the usual one: estimates are not better than that."""
ALIKE = 0.95
"""Costs that differ by less are called equal in the reason."""
MOST_UNEVEN = 1.25
"""How much more than the mean the most loaded unit of a side may store, for the heaviest key's sake."""


def units_of(partitions: int) -> int:
    """Units of a chosen model: one a partition, two at least."""
    return max(2, min(partitions, MOST_CHOSEN))


def usual(partitions: int) -> Biclique:
    """What runs any condition, stores each tuple once and fills the partitions: a biclique of equal sides.

    >>> usual(4), usual(200).n_units
    (Biclique(units=(2, 2)), 32)
    """
    return Biclique(units=units_of(partitions) // 2)


def subgroups(units: int, work: Workload) -> int:
    """Subgroups of a side: as many as its heaviest key allows.

    Of m units in d subgroups those of the heaviest key's, m / d, store its share p and (1 - p) / d of the
    rest: 1 + p (d - 1) times the mean each. So d = 1 + (MOST_UNEVEN - 1) / p at most. Every subgroup more
    saves probes. Where p was not given, a subgroup has two units or more: one key never waits for one unit;
    and bands are not routed by range, since their keys may all lie within few of them.

    >>> from thetastream.plan.workload import Inflow
    >>> flow = Inflow("a", 1000, 60, 50, 40, 10)
    >>> [subgroups(m, Workload((flow, flow), "hash", None, 0.15, "hash")) for m in (1, 2, 4, 16)]
    [1, 1, 2, 2]
    """
    if work.content is None or (work.content == "range" and not work.skew_is_known):
        return 1
    most = units if work.skew_is_known else units // 2
    more = (MOST_UNEVEN - 1) / work.heaviest_key + 1e-9 if work.heaviest_key else units
    even = 1 + int(min(units, more))
    return max(1, min(most, even))


def arrival_problem(model: Model, is_counted: bool, is_ordered: bool) -> QueryError | None:
    """What a model that does not see all tuples cannot do; None if nothing of it is asked for."""
    needs = " and ".join(["count windows"] * is_counted + ["ordered results"] * is_ordered)
    if not needs or (model.sees_all and not isinstance(model, Multiway)):
        return None
    what = f"{needs} need the order of arrival, which {model!r} does not keep"
    return QueryError("SPLIT_NEEDED", f"{what}; use th.Split(cores), or leave model out")


def refusal(model: Model, lowered: Lowered, is_ordered: bool = False) -> QueryError | None:
    """Why a model cannot run a query; None if it can."""
    problem = arrival_problem(model, lowered.physical.counts is not None, is_ordered)
    if problem is not None:
        return problem
    try:
        placing(model, lowered.physical.condition)
    except QueryError as refused:
        return refused
    return None


def candidates(name: str, units: int, work: Workload) -> Iterator[Model]:
    """Every way to set a registered model to that many units.

    >>> from thetastream.plan.workload import Inflow
    >>> flow = Inflow("a", 1000, 60, 50, 40, 10)
    >>> list(candidates("matrix", 4, Workload((flow, flow), "scan", None, 0)))
    [Matrix(rows=1, columns=4), Matrix(rows=2, columns=2), Matrix(rows=4, columns=1)]
    """
    if name == Biclique.name:
        for m in range(1, units):
            n = units - m
            yield Biclique((m, n))
            groups = subgroups(m, work), subgroups(n, work)
            if max(groups) > 1:
                yield Biclique((m, n), groups)
    elif name == Matrix.name:
        for rows in range(1, units + 1):
            if units % rows == 0:
                yield Matrix(rows, units // rows)
    else:
        yield REGISTRY[name](units)  # models that take a number of units need no line here


def compare(
    work: Workload, partitions: int, can_run: Callable[[Model], bool] = lambda model: True
) -> list[Estimate]:
    """The cheapest setting of every model for two streams that can run the query, cheapest first."""
    units = units_of(partitions)
    best = []
    for name, kind in REGISTRY.items():
        if issubclass(kind, Model) and not kind.is_costed:
            continue  # asked for by name
        found = [
            estimate(model, work, partitions) for model in candidates(name, units, work) if can_run(model)
        ]
        if found:
            best.append(min(found, key=_cost))
    return sorted(best, key=_cost)


def choose(
    work: Workload, partitions: int, can_run: Callable[[Model], bool] = lambda model: True
) -> tuple[Model, str]:
    """The model to run with, and why.

    Parameters
    ----------
    work : Workload
        From ``thetastream.plan.workload``.
    partitions : int
        ``spark.sql.shuffle.partitions`` of the session.
    can_run : callable
        Whether a model can run the query.
    """
    compared = compare(work, partitions, can_run)
    cheapest, model = compared[0], usual(partitions)
    if not can_run(model):
        return cheapest.model, f"chosen: the cheapest that can run this {_at(partitions)}"
    cost = estimate(model, work, partitions).cost
    if cheapest.cost < MARGIN * cost:
        part = _percent(cheapest.cost, cost)
        return cheapest.model, f"chosen: costs {part} of {model!r} {_at(partitions)}"
    if cheapest.model != model and cheapest.cost < ALIKE * cost:
        part = _percent(cheapest.cost, cost)
        return model, (
            f"chosen: runs any condition and stores tuples once; {cheapest.model!r} would cost {part} of it, "
            f"and the margin is {MARGIN:.0%} {_at(partitions)}"
        )
    return model, f"chosen: the cheapest {_at(partitions)}"


def _cost(estimated: Estimate) -> float:
    return estimated.cost


def _percent(cost: float, whole: float) -> str:
    return f"{cost / whole:.0%}" if whole else "0%"


def _at(partitions: int) -> str:
    return f"on {partitions} shuffle partition{'s' * (partitions != 1)}"
