"""Bandwidth against input rate (BiStream, figure 11).

Bandwidth grows in proportion to the input rate, and ContRand routing keeps the biclique's far below that of
random routing.
"""

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers import inputs
from bench.papers.bistream.bandwidth_by_units import received
from bench.papers.bistream.models import UNITS, by_copies

RATES = (5_000, 10_000, 20_000, 40_000)
"""Numbers of tuples of both streams per second."""
NAMES = ("Q5", "equal streams")


def measure(run: Run) -> Verdict:
    for name in NAMES:
        for rate in RATES:
            size = run.sized(rate)
            whole = inputs.q5(run.scale)
            query = inputs.zipf(size // 2, 0.0, run.seed)
            query = whole.part(size / whole.volume) if name == "Q5" else query
            for setting, (model, _) in by_copies(UNITS).items():
                found = received(run, query, model, epochs=1)
                mb = found["received_bytes_per_tuple"] * query.volume / 1e6
                named = {"query": name, "setting": setting, "rate": query.volume}
                run.add(**named, mb_per_s=mb, **found, is_shown=rate == RATES[-1])
    run.parameters = {"units": UNITS}
    shown = run.rows.where(is_shown=True)
    q5, equal = (shown.by("setting", "mb_per_s", query=name) for name in NAMES)
    by_rate = run.rows.by("rate", "mb_per_s", query=NAMES[1], setting="JB (random)")
    low, high = min(by_rate), max(by_rate)
    growth = by_rate[high] / by_rate[low]
    ratio = equal["JB (random)"] / equal["JB-CR4"]
    facts = {
        f"{high / low:.2f} times the input rate takes the bytes times": growth,
        "with streams of equal length, random routing needs the bytes of 4 subgroups times": ratio,
        "and the square matrix needs them times": equal["JM, square"] / equal["JB-CR4"],
        "with Q5, the square matrix needs them times": q5["JM, square"] / q5["JB-CR4"],
    }
    return Verdict(abs(growth / (high / low) - 1) < 0.1 and ratio > 1.5, ratio, facts)


FIGURE = Figure(
    measure,
    "random routing / ContRand, bytes",
    tuple(Panel(f"{name}, {UNITS} units", "rate", "mb_per_s", "setting", {"query": name}) for name in NAMES),
    "query; setting; rate; mb_per_s; received_per_tuple; received_bytes_per_tuple",
    is_in_table=lambda row: row["is_shown"],
)
