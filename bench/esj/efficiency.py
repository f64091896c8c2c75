"""rho and throughput against the window, index by index, beside the bounds of ESJ's theorems.

rho is matches per candidate, a candidate being a stored tuple that the walk looked at; ``rho_searched``
counts the steps of bisections too (``steps``). Finding a bucket among 16 keys is not counted. All as one unit
does it that stores and probes both streams (``Split(1)``), once the window is full.

The unit walks whole subindexes that a window touches, so it looks at more than the window: the measured rho
of a nested loop lies below its bound by that, not by the index.
"""

from math import log2

from bench.esj.inputs import BAND, INDEXES, KEYS, SELECTIVITY, Keyed, keyed
from bench.esj.steps import counted
from bench.figures.figure import Check, Column, Figure, Measured, Panel, Row, Setup, Verdict, yes_or_no
from bench.figures.replay import Step, cpu_of_units, replay
from thetastream.models import Split
from thetastream.plan.efficiency import brute_force, by_hash, by_range, matches

WINDOWS = tuple(1 << power for power in range(10, 17))
LONGEST_SCAN = 1 << 14
"""A nested loop then looks at 10**9 tuples in all."""
EPOCH, WINDOWS_LONG, EPOCHS_A_WINDOW = 1 << 10, 3, 4
"""Tuples of a stream in an epoch, at least; the stream in windows; epochs of a window."""
REPLAYS = 2


def bound(kind: str, window: float) -> float:
    """rho as the theorems have it."""
    found = matches(SELECTIVITY, window)
    if kind == "scan":
        return brute_force(SELECTIVITY)
    if kind == "hash":
        return by_hash(found, window / KEYS)
    if kind == "sorted":
        return by_range(found, window, in_range=BAND * window)
    return by_range(found, window / KEYS)


def measured(query: Keyed, window: int, least: int, replays: int) -> tuple[Row, Check]:
    """One index at one window, in epochs of ``least`` tuples a stream or more."""
    n = query.tables[0].num_rows
    epochs = n // max(least, window // EPOCHS_A_WINDOW)
    full = -(-window * epochs // n)
    with counted() as steps:
        begun, counting = 0, []
        for number, step in enumerate(replay(query, Split(1), epochs)):
            counting.append(step)
            begun = steps() if number < full else begun
        searched = steps() - begun
    # A nested loop has no steps to count, and takes long enough once.
    timed: list[list[Step]] = [counting]
    if query.kind != "scan":
        timed = [list(replay(query, Split(1), epochs)) for _ in range(replays)]
    steady = counting[full:]
    found, seen, probes = (
        sum(step.total(name) for step in steady) for name in ("matched", "candidates", "probed")
    )
    tuples = steady[-1].volume - counting[full - 1].volume
    seconds = sum(cpu_of_units(timed, range(full, epochs)))
    row = {
        "index": query.kind,
        "window": window,
        "rho": found / seen,
        "rho_searched": found / (seen + searched),
        "bound": bound(query.kind, window),
        "candidates_per_probe": seen / probes,
        "steps_per_probe": searched / probes,
        "matches_per_probe": found / probes,
        "tuples_per_s": tuples / seconds,
        "epochs": epochs,
    }
    expected = query.expected()
    results = [sum(step.results for step in steps) for steps in (counting, *timed)]
    wrong = [count for count in results if count != expected]
    what = f"{query.kind}, window {window:,}"
    return row, Check(what, expected, wrong[0] if wrong else expected)


def efficiency(setup: Setup) -> Measured:
    """All indexes at all windows."""
    rows, checks = [], []
    for largest in WINDOWS:
        window, least = setup.sized(largest), setup.sized(EPOCH)
        query = keyed(max(WINDOWS_LONG * window, WINDOWS_LONG * EPOCHS_A_WINDOW * least), window, setup.seed)
        for kind in INDEXES:
            if kind == "scan" and largest > LONGEST_SCAN:
                continue
            setup.announce(f"efficiency: {kind}, window {window:,}")
            row, check = measured(query.by(kind), window, least, REPLAYS)
            rows.append(row)
            checks.append(check)
    at = {(row["index"], row["window"]): row for row in rows}
    first, last, scanned = (setup.sized(window) for window in (WINDOWS[0], WINDOWS[-1], LONGEST_SCAN))
    flat = at["scan", scanned]["rho"] / at["scan", first]["rho"]
    falls = at["scan", scanned]["tuples_per_s"] / at["scan", first]["tuples_per_s"]
    grows = at["sorted", last]["rho_searched"] / at["sorted", first]["rho_searched"]
    bounds = at["sorted", last]["bound"] / at["sorted", first]["bound"]
    of_bound = {
        kind: [row["rho_searched"] / row["bound"] for row in rows if row["index"] == kind] for kind in INDEXES
    }
    ratio = at["hash_sorted", scanned]["rho_searched"] / at["scan", scanned]["rho_searched"]
    spans = ", ".join(f"{kind} {min(parts):.2f} to {max(parts):.2f}" for kind, parts in of_bound.items())
    steps = at["sorted", last]["steps_per_probe"]
    text = (
        f"from a window of {first:,} to one of {scanned:,} the nested loop's rho changes by a factor of"
        f" {flat:.2f} and its throughput by {falls:.3f}, where 1 / W is {first / scanned:.3f}; to {last:,}"
        f" the sorted index's rho, bisections counted, grows {grows:.2f} times, its bound {bounds:.2f} times;"
        f" of their bounds they reach {spans}, because a window is a chain of subindexes and each is bisected"
        f" ({steps:.0f} steps a probe at {last:,}, where one run would take {log2(last):.0f}); at {scanned:,}"
        f" hash and order together have {ratio:.2f} times the nested loop's rho"
    )
    holds = 0.5 < flat < 2 and all(0.5 < part < 1.2 for parts in of_bound.values() for part in parts)
    return Measured(
        rows,
        Verdict(yes_or_no(holds, ratio > 10), ratio, text),
        checks,
        {
            "keys": KEYS,
            "band": BAND,
            "selectivity": SELECTIVITY,
            "stream": f"{WINDOWS_LONG} windows or 12 epochs",
            "least tuples of a stream and epoch": EPOCH,
        },
    )


FIGURE = Figure(
    name="efficiency-by-window",
    title="Efficiency and throughput against the window",
    source="ESJ, efficiency theorems",
    claim="Comparing all with all has an efficiency of the selectivity at any window, so that throughput"
    " falls as 1 / W; a sorted index has matches / (log2 W + range), a hash index matches / bucket.",
    ratio_of="hash_sorted / scan, rho at the longest window scanned",
    panels=(
        Panel(
            "dashed: bounds; a bisection step counts as a comparison",
            "window",
            "rho_searched",
            "index",
            ("window (tuples a stream)", "rho"),
            log="xy",
            beside="bound",
        ),
        Panel(
            "one unit on a core of its own",
            "window",
            "tuples_per_s",
            "index",
            ("window (tuples a stream)", "tuples/s"),
            log="xy",
        ),
    ),
    columns=(
        Column("index", "index"),
        Column("window (tuples a stream)", "window", "{:,}"),
        Column("rho = matched / candidates", "rho", "{:.2e}"),
        Column("rho, steps counted", "rho_searched", "{:.2e}"),
        Column("bound", "bound", "{:.2e}"),
        Column("candidates/probe", "candidates_per_probe", "{:,.1f}"),
        Column("bisection steps/probe", "steps_per_probe", "{:.1f}"),
        Column("matches/probe", "matches_per_probe", "{:.2f}"),
        Column("tuples/s", "tuples_per_s", "{:,.0f}"),
    ),
    measure=efficiency,
    truth="a count in NumPy",
)
