"""Efficiency and throughput against the window (ESJ, efficiency theorems).

Comparing all with all has an efficiency of the selectivity at any window, so that throughput falls as 1 /
W; a sorted index has matches / (log2 W + range), a hash index matches / bucket.

rho is matches per candidate. A candidate is a stored tuple that the walk looks at; ``rho_searched`` counts
the steps of bisections too (``steps``). The search for a bucket among 16 keys is not counted. One unit stores
and probes both streams (``Split(1)``), and is measured once the window is full.

The unit walks each subindex that a window touches as a whole, so it looks at more tuples than the window has.
This is why the measured rho of a nested loop lies below its bound.
"""

from math import log2

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import brute_force, by_hash, by_range, matches
from bench.core.query import Query
from bench.core.replay import Step, cpu_of_units, replay, total, tuples_in
from bench.papers.esj.inputs import BAND, KEYS, SELECTIVITY, make_join
from bench.papers.esj.steps import count_steps
from thetastream.models import Split

INDEXES = ("scan", "hash", "sorted", "hash_sorted")
WINDOWS = tuple(1 << power for power in range(10, 17))
LONGEST_SCAN = 1 << 14
"""The longest window of a nested loop, which looks at 10**9 tuples in all."""
EPOCH, WINDOWS_LONG, EPOCHS_A_WINDOW = 1 << 10, 3, 4
"""The least tuples of a stream in an epoch, the windows in a stream, and the epochs in a window."""
REPLAYS = 2


def bound(kind: str, window: float) -> float:
    found = matches(SELECTIVITY, window)
    if kind == "scan":
        return brute_force(SELECTIVITY)
    if kind == "hash":
        return by_hash(found, window / KEYS)
    if kind == "sorted":
        return by_range(found, window, in_range=BAND * window)
    return by_range(found, window / KEYS)


def measure_index(run: Run, query: Query, kind: str, window: int, least: int) -> None:
    """Measure one index at one window, in epochs of at least ``least`` tuples of a stream."""
    n = query.tables[0].num_rows
    epochs = n // max(least, window // EPOCHS_A_WINDOW)
    full = -(-window * epochs // n)
    what = f"{kind}, window {window:,}"
    run.announce(what)
    counting: list[Step] = []
    with count_steps() as steps:
        begun = 0
        for step in replay(query, Split(1), epochs):
            counting.append(step)
            begun = steps() if len(counting) <= full else begun
        searched = steps() - begun
    # A nested loop has no steps to count, and one run of it takes long enough.
    again = 0 if kind == "scan" else REPLAYS
    timed = [list(replay(query, Split(1), epochs)) for _ in range(again)] or [counting]
    for steps_of_run in [counting, *timed[:again]]:
        run.check(what, query.expected, sum(step.results for step in steps_of_run))
    steady, measured = counting[full:], range(full, epochs)
    found, seen, probes = (total(steady, name) for name in ("matched", "candidates", "probed"))
    run.add(
        index=kind,
        window=window,
        rho=found / seen,
        rho_searched=found / (seen + searched),
        bound=bound(kind, window),
        candidates_per_probe=seen / probes,
        steps_per_probe=searched / probes,
        matches_per_probe=found / probes,
        tuples_per_s=tuples_in(counting, measured) / sum(cpu_of_units(timed, measured)),
        epochs=epochs,
    )


def measure(run: Run) -> Verdict:
    least = run.sized(EPOCH)
    for largest in WINDOWS:
        window = run.sized(largest)
        query = make_join(
            max(WINDOWS_LONG * window, WINDOWS_LONG * EPOCHS_A_WINDOW * least), window, run.seed
        )
        expected = query.expected
        for kind in INDEXES:
            if kind != "scan" or largest <= LONGEST_SCAN:
                forced = query.by(kind)
                vars(forced)["expected"] = expected
                measure_index(run, forced, kind, window, least)
    run.parameters = {
        "keys": KEYS,
        "band": BAND,
        "selectivity": SELECTIVITY,
        "stream": f"{WINDOWS_LONG} windows or 12 epochs",
        "least tuples of a stream and epoch": EPOCH,
    }
    first, last, scanned = (run.sized(window) for window in (WINDOWS[0], WINDOWS[-1], LONGEST_SCAN))
    ends, scans = ({"window": last}, {"window": first}), ({"window": scanned}, {"window": first})
    scan, ordered = run.rows.where(index="scan"), run.rows.where(index="sorted")
    flat, falls = (scan.ratio(figure, *scans) for figure in ("rho", "tuples_per_s"))
    grows, bounds = (ordered.ratio(figure, *ends) for figure in ("rho_searched", "bound"))
    of_bound = {
        kind: [row["rho_searched"] / row["bound"] for row in run.rows.where(index=kind)] for kind in INDEXES
    }
    both, loop = {"index": "hash_sorted"}, {"index": "scan"}
    ratio = run.rows.where(window=scanned).ratio("rho_searched", both, loop)
    facts = {
        f"from window {first:,} to {scanned:,}, the rho of the nested loop changes by a factor of": flat,
        "its throughput changes by a factor of": falls,
        "1 / W changes by a factor of": first / scanned,
        f"to window {last:,}, the rho of the sorted index, bisections counted, grows by a factor of": grows,
        "its bound grows by a factor of": bounds,
        **{f"{kind} reaches of its bounds": parts for kind, parts in of_bound.items()},
        f"steps of a probe of the sorted index at {last:,}:": ordered.at("steps_per_probe", window=last),
        "steps in one run would be": log2(last),
        f"at {scanned:,}, hash and order together have the rho of the nested loop times": ratio,
    }
    remark = "a window is a chain of subindexes, and each is bisected"
    holds = 0.5 < flat < 2 and all(0.5 < part < 1.2 for parts in of_bound.values() for part in parts)
    return Verdict(holds, ratio, facts, remark, partly=ratio > 10)


TITLE = "dashed: bounds; a bisection step counts as a comparison"
FIGURE = Figure(
    measure,
    "hash_sorted / scan, rho at the longest window scanned",
    (
        Panel(TITLE, "window", "rho_searched", "index", log="xy", beside="bound"),
        Panel("one unit on a core of its own", "window", "tuples_per_s", "index", log="xy"),
    ),
    "index; window; rho; rho_searched; bound; candidates_per_probe; steps_per_probe; matches_per_probe;"
    " tuples_per_s",
)
