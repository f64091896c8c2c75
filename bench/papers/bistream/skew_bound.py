"""Throughput that the busiest unit allows under skew (an experiment of ours on BiStream, section 3.2.2).

If each unit has a core, subgroups that two-phase scaling adapts sustain more throughput under skew than pure
hash, and more so if a tuple has many results.

Pure hash sends the heaviest key to one unit, which then makes most comparisons. The adapted query begins as
pure hash, with one unit in each subgroup. The policy adds units to the subgroups that work most. It sees the
seconds of the cost model for tuples and comparisons, and tuples arrive ``FASTER`` times as fast as pure hash
can process them by these seconds. So its decisions repeat.

If each unit has a core, an epoch takes as long as its busiest unit. CPU time is counted from the middle of
the stream on, also of units that only hold older tuples.
"""

from collections.abc import Iterator

import numpy as np

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import (
    CANDIDATE_S,
    INSERT_S,
    ControlledRun,
    Counters,
    Inbox,
    LoadReader,
    Request,
    Rules,
    TwoStreamSpec,
    UnitLoad,
    apply_requests,
)
from bench.core.query import Query
from bench.core.replay import Batches, Step, total, tuples_in
from bench.papers import inputs
from bench.papers.bistream.skew_load import SIDE, ZIPF
from thetastream.models import Biclique
from thetastream.runtime.control.policies import TwoPhaseScaling

RULES = Rules(64, ("hash",))
EPOCHS, REPLAYS, TUPLES = 12, 2, 240_000
FASTER = 1.5
MORE = 12
"""More units a side than the adapted query has at the end."""
RESULTS = (2.0, 50.0)
"""The results of a tuple, if the window were the whole stream. The window is a quarter of it."""
HASHED, ADAPTED = "pure hash", "ContRand, adapted subgroups"
MODELS = {
    HASHED: Biclique(SIDE, subgroups=SIDE),
    f"pure hash, {MORE} units a side": Biclique(MORE, subgroups=MORE),
    "ContRand, 4 equal subgroups": Biclique(SIDE, subgroups=4),
    ADAPTED: Biclique(SIDE, subgroups=SIDE),
    "random": Biclique(SIDE),
}
POLICY = TwoPhaseScaling(high=0.8, low=0.0, target=0.6, capacity=1.0, every="1 second", agree=1)
TARGET = 1.5
"""The target: what the adapted query allows, divided by what pure hash allows."""


class SkewedRun(ControlledRun):
    """A controlled query in one process, which reads its requests at the beginning of each epoch."""

    def deliver(self, batches: Batches, watermark_us: int | None = None) -> list[Inbox]:
        """Read the requests, and begin an epoch. Slots without a unit in this epoch count nothing."""
        self.read_offset(apply_requests(self.offset, self.requests, self.drained, RULES))
        self.counters = [Counters() for _ in self.states]
        return super().deliver(batches, watermark_us)


def estimate_s(unit: Counters) -> float:
    """Estimate how long a unit works in an epoch, as the cost model does."""
    return INSERT_S * unit.received + CANDIDATE_S * unit.candidates


def replay(query: Query, model: Biclique, epoch_s: float | None = None) -> Iterator[tuple[Step, int]]:
    """Replay a query; yield each step, and how many units store new tuples.

    The policy is followed if ``epoch_s`` says how long an epoch lasts.
    """
    run = SkewedRun(TwoStreamSpec(query.unit_spec(), model), model, RULES)
    decider, reader, volume = POLICY.begin(), LoadReader(), 0
    for epoch, (left, right, watermark) in enumerate(query.epochs(EPOCHS)):
        volume += left.num_rows + right.num_rows
        step = Step(volume)
        step.run(run, [left, right], watermark)
        yield step, run.plan.newest.model.n_units
        if epoch_s is None:
            continue
        reports = [UnitLoad(slot, unit.mlv_bytes, estimate_s(unit)) for slot, unit in enumerate(step.units)]
        load = reader.read(10 * epoch, reports, run.offset.plan)
        sizes = decider.decide(load._replace(epoch_s=epoch_s))
        if sizes is not None:
            half = len(sizes) // 2
            run.put(Request(sizes={"units": (sizes[:half], sizes[half:])}))


def measure(run: Run) -> Verdict:
    later = range(EPOCHS // 2, EPOCHS)
    for results in run.some(RESULTS):
        query = inputs.zipf(run.sized(TUPLES), ZIPF, run.seed, results=results).within(1 / 4)
        hashed = [step for step, _ in replay(query, MODELS[HASHED])]
        busiest_s = [max(map(estimate_s, hashed[epoch].units)) for epoch in later]
        epoch_s = sum(busiest_s) / len(later) / FASTER
        for setting, model in MODELS.items():
            run.announce(f"{results:g} results, {setting}")
            asked = epoch_s if setting == ADAPTED else None
            replays = [list(replay(query, model, asked)) for _ in range(REPLAYS)]
            steps, units = [step for step, _ in replays[0]], replays[0][-1][1]
            run.check(f"{results:g} results, {setting}", query.expected, sum(step.results for step in steps))
            compared = [[unit.candidates for unit in steps[epoch].units] for epoch in later]
            worked = [max(map(estimate_s, steps[epoch].units)) for epoch in later]
            cpu_s = np.min([[one[epoch][0].cpu_s for epoch in later] for one in replays], axis=0)
            n_tuples = tuples_in(steps, later)
            run.add(
                results_per_tuple=total(steps, "matched") / query.volume,
                setting=setting,
                units=units,
                compared_by_busiest=float(np.max(compared, axis=1).sum() / np.sum(compared)),
                cpu_us_per_tuple=1e6 * float(cpu_s.sum()) / n_tuples,
                estimated_tuples_per_s=n_tuples / sum(worked),
                bound_tuples_per_s=n_tuples / float(cpu_s.max(axis=1).sum()),
            )
    run.parameters = {
        "zipf": ZIPF,
        "tuples_per_stream": run.sized(TUPLES),
        "window": "a quarter",
        "arrivals_as_fast_as_pure_hash_allows_times": FASTER,
        "T_h, T_l, psi": [POLICY.high, POLICY.low, POLICY.target],
    }
    return judge(run)


def judge(run: Run) -> Verdict:
    """Divide what the busiest unit allows by what it allows under pure hash, for each number of results."""
    bounds = {name: run.rows.by("results_per_tuple", "bound_tuples_per_s", setting=name) for name in MODELS}
    over = {
        name: {
            f"{n:.2g}": bound / hashed
            for (n, bound), hashed in zip(found.items(), bounds[HASHED].values(), strict=True)
        }
        for name, found in bounds.items()
        if name != HASHED
    }
    compared = run.rows.by("setting", "compared_by_busiest")
    estimated = [
        run.rows.by("results_per_tuple", "estimated_tuples_per_s", setting=name).values()
        for name in (ADAPTED, HASHED)
    ]
    ratio = list(over[ADAPTED].values())[-1]
    facts = {
        **{
            f"{name} allows times the throughput of pure hash, by results of a tuple:": found
            for name, found in over.items()
        },
        f"by the seconds of the cost model, which repeat, {ADAPTED} allow times as much:": {
            f"{n:.2g}": adapted / hashed
            for n, adapted, hashed in zip(bounds[HASHED], *estimated, strict=True)
        },
        "the busiest unit makes the share of all comparisons:": compared,
        "units at the end:": run.rows.by("setting", "units"),
    }
    remark = "CPU time of units in one process, without exchange and state store"
    is_reached = [times >= TARGET for times in over[ADAPTED].values()]
    return Verdict(all(is_reached), ratio, facts, remark, partly=any(is_reached))


FIGURE = Figure(
    measure,
    "adapted subgroups / pure hash, tuples/s that the busiest unit allows",
    tuple(
        Panel("if each unit has a core", "results_per_tuple", name, "setting", log="xy")
        for name in ("bound_tuples_per_s", "compared_by_busiest")
    ),
    "results_per_tuple; setting|routing; units; compared_by_busiest|of all comparisons, by the busiest;"
    " estimated_tuples_per_s|bound by the cost model (tuples/s); cpu_us_per_tuple|CPU µs/tuple, all units;"
    " bound_tuples_per_s|bound by the busiest (tuples/s)",
)
