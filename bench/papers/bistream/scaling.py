"""Units that are added and removed while the query runs (BiStream, figure 12).

When load rises, two-phase scaling adds units in one step, a short fluctuation changes nothing, and units are
removed when load falls; no tuple moves, and results continue meanwhile.

Both queries begin with 8 units for lineitem and one for suppliers. The capacity of a unit is chosen so that
the units are filled to 0.55 before load rises. The thresholds are the paper's, and 50 minutes are compressed
to 100 epochs. Requests, plans, notices, routers and units are those of a controlled query, in one process:
the time of an epoch is the CPU time of its units, without Spark.
"""

import numpy as np

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.replay import bytes_held
from bench.core.rows import Rows
from bench.papers.bistream.load_curve import EPOCH_S, WINDOW_EPOCHS, describe_curve, follow_curve
from bench.papers.bistream.scaled_replay import Change, ScaledRun, replay_curve
from thetastream.runtime.control.policies import TwoPhaseScaling

UNITS, FILLED, REPLAYS = 8, 0.55, 2
"""Units for lineitem at first, the share of their capacity that they use then, and replays of each query."""
FIXED, SCALED = "fixed units", "two-phase scaling"
FULL = WINDOW_EPOCHS + 2
"""The first epoch in which the window is full."""
SHOWN = (6, 12, 20, 24, 29, 36, 42, 48)
"""The minutes that the table shows: before and after the changes, and the fluctuation."""
MOST_SLOWER, MOST_EPOCHS = 1.2, 2
"""The targets: the time of epochs in which units change, and the epochs until a change takes effect."""


def measure(run: Run) -> Verdict:
    query = follow_curve(run.scale)
    # 1. Replay fixed units, which give the capacity.
    run.announce(FIXED)
    found = {FIXED: [replay_curve(query, UNITS) for _ in range(REPLAYS)]}
    capacity = sum(bytes_held(found[FIXED][0].steps[FULL])[1:]) / UNITS / FILLED
    # 2. Replay with the policy.
    run.announce(SCALED)
    policy = TwoPhaseScaling(capacity=round(capacity))
    found[SCALED] = [replay_curve(query, UNITS, policy, FULL) for _ in range(REPLAYS)]
    # 3. Compare.
    for name, runs in found.items():
        run.check(name, query.expected, sum(step.results for step in runs[0].steps))
        add_epochs(run, name, runs, capacity)
    run.parameters = {
        **describe_curve(),
        "tuples": query.volume,
        "capacity of a unit (MB)": capacity / 1e6,
        "T_h, T_l, psi": [policy.high, policy.low, policy.target],
        "checks": f"every {policy.every}, {policy.agree} equal decisions",
    }
    scaled = found[SCALED][0]
    return judge(run.rows, scaled.list_changes(), scaled.count_stored_again())


def add_epochs(run: Run, name: str, runs: list[ScaledRun], capacity: float) -> None:
    """Add a row for each epoch of a query. The least CPU time of the replays counts."""
    first = runs[0]
    least_s = np.min([[step.cpu_s for step in one.steps] for one in runs], axis=0)
    for epoch, step in enumerate(first.steps):
        arrived = step.volume - (first.steps[epoch - 1].volume if epoch else 0)
        cpu_ms = 1000 * float(least_s[epoch].sum())
        run.add(
            setting=name,
            minute=epoch * EPOCH_S / 60,
            arrived=arrived,
            units=first.units[epoch],
            fullest=max(bytes_held(step)) / capacity,
            cpu_ms=cpu_ms,
            bound_tuples_per_s=arrived / float(least_s[epoch].max()),
        )


def judge(rows: Rows, changes: list[Change], stored_again: int) -> Verdict:
    """Compare the changes with the targets."""
    # 1. The epochs from a request until the older units are empty, beside the same epochs with fixed units.
    cpu_ms = {name: list(rows.by("minute", "cpu_ms", setting=name).values()) for name in (FIXED, SCALED)}
    slower = np.divide(cpu_ms[SCALED], cpu_ms[FIXED])
    spans = [range(one.asked + 1, min(len(slower), one.since + WINDOW_EPOCHS + 1)) for one in changes]
    steady = sorted(set(range(FULL, len(slower))).difference(*spans))
    meanwhile = [float(np.median(slower[span]) / np.median(slower[steady])) for span in spans]
    ratio = max(meanwhile, default=0.0)
    # 2. The other targets.
    waited = max((one.since - one.asked for one in changes), default=0)
    fullest = {name: max(row["fullest"] for row in rows.where(setting=name)) for name in cpu_ms}
    last = {name: rows.where(setting=name)[-1]["fullest"] for name in cpu_ms}
    facts = {
        "beside fixed units, epochs in which units change take the CPU time of other epochs times": ratio,
        "units are added in each change (removed: negative):": [one.added for one in changes],
        "at the minutes": [one.since * EPOCH_S / 60 for one in changes],
        "a change takes effect after epochs:": waited,
        "tuples that move:": stored_again,
        "the fullest unit uses the share of its capacity:": fullest,
        "and in the last epoch:": last,
    }
    is_one_step = [one.added > 0 for one in changes] == [True, False]
    is_exact = is_one_step and waited <= MOST_EPOCHS and stored_again == 0
    remark = (
        "CPU times of single epochs vary, so medians are compared;"
        " Spark's exchange and state store are not in them"
    )
    return Verdict(is_exact and ratio <= MOST_SLOWER, ratio, facts, remark, partly=is_exact)


FIGURE = Figure(
    measure,
    "epochs in which units change / other epochs, each divided by the same epoch with fixed units, CPU time",
    (
        Panel("the load curve", "minute", "arrived", "setting", {"setting": SCALED}),
        Panel("units for lineitem", "minute", "units", "setting"),
        Panel("memory", "minute", "fullest", "setting"),
        Panel("time", "minute", "cpu_ms", "setting"),
    ),
    "minute; setting; arrived; units; fullest; cpu_ms|CPU of all units (ms/epoch);"
    " bound_tuples_per_s|bound by the busiest (tuples/s)",
    is_in_table=lambda row: row["minute"] in SHOWN,
)
