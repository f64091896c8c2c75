"""Bandwidth against input rate (BiStream, figures 11, 18 and 19).

Bandwidth grows in proportion to the input rate. Random routing needs more of it than the matrix with as many
partitions of each stream, and ContRand routing needs less than random routing.
"""

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers import inputs
from bench.papers.bistream.copies_by_units import received
from bench.papers.bistream.models import square
from thetastream.models import Biclique

RATES = {"Q5": (4_000, 20_000, 40_000, 60_000), "Q7": (10_000, 30_000, 50_000), "Band": (200, 800, 1_600)}
"""Numbers of tuples of both streams per second."""
PARTITIONS = 4
"""Number of partitions of each stream in all models."""
MODELS = {
    "JM16": square(PARTITIONS**2),
    "JB8": Biclique(PARTITIONS),
    "JB8-CR2": Biclique(PARTITIONS, subgroups=2),
    "JB8-CR4": Biclique(PARTITIONS, subgroups=4),
}


def measure(run: Run) -> Verdict:
    for name, rates in RATES.items():
        whole = inputs.TPCH[name](run.scale)
        for rate in rates:
            query = whole.part(min(1.0, run.sized(rate) / whole.volume))
            for setting, model in MODELS.items():
                found = received(run, query, model, epochs=1)
                mb = found["received_bytes_per_tuple"] * query.volume / 1e6
                named = {"query": name, "setting": setting, "rate": query.volume}
                run.add(**named, mb_per_s=mb, **found, is_shown=rate == rates[-1])
    run.parameters = {"partitions_of_each_stream": PARTITIONS}
    shown = run.rows.where(is_shown=True)
    highest = {name: shown.by("setting", "mb_per_s", query=name) for name in RATES}
    growth = {}
    for name in RATES:
        by_rate = run.rows.by("rate", "mb_per_s", query=name, setting="JB8")
        low, high = min(by_rate), max(by_rate)
        growth[name] = by_rate[high] / by_rate[low] / (high / low)
    over_matrix = {name: mb["JB8"] / mb["JM16"] for name, mb in highest.items()}
    saved = {name: mb["JB8"] / mb["JB8-CR4"] for name, mb in highest.items()}
    ratio = min(saved.values())
    facts = {
        "bytes grow with the input rate in proportion, times": growth,
        "random routing needs the bytes of the matrix times": over_matrix,
        "random routing needs the bytes of ContRand with 4 subgroups times": saved,
        "the least is": ratio,
    }
    in_proportion = max(abs(factor - 1) for factor in growth.values()) < 0.1
    holds = in_proportion and ratio > 1.2 and min(over_matrix.values()) > 1
    return Verdict(holds, ratio, facts, partly=in_proportion and ratio > 1)


FIGURE = Figure(
    measure,
    "random routing / ContRand, bytes, the query with the least",
    tuple(Panel(name, "rate", "mb_per_s", "setting", {"query": name}) for name in RATES),
    "query; setting; rate; mb_per_s; received_per_tuple; received_bytes_per_tuple",
    is_in_table=lambda row: row["is_shown"],
)
