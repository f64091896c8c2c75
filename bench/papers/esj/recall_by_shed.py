"""Share of the results that is kept against the share of the tuples that is dropped, by who is dropped first
(past ESJ's load shedder, which drops any tuples).

A shedder that drops the tuples with the fewest partners first keeps several times as many results as one that
drops any tuples, if keys are skewed; and more also if they are not, because both streams drop the same cells.

random keeps p^2 of the results if it keeps a share p of the tuples. semantic counts, in 256 cells of keys,
the tuples of the other stream in the epochs before. full knowledge drops by the numbers of partners that
tuples have in the whole join, which no shedder can know.
"""

import numpy as np
import pyarrow as pa

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import CellCounts, Shedding, Side, find_placing
from bench.core.query import Query
from bench.core.replay import replay
from bench.papers import inputs
from thetastream import Shed
from thetastream.models import Biclique

EPOCHS = 20
EXPONENTS = (0.0, 0.8, 1.2)
NAMES = tuple(f"Zipf {exponent:g}" for exponent in EXPONENTS)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
RANDOM, SEMANTIC, KNOWN = "random", "semantic", "full knowledge"
CHECKED = 0.5
"""The share at which units join the kept tuples too."""
LOAD = 1_000_000


def shed_tuples(query: Query, kind: str, share: float) -> list[pa.Table]:
    """Drop a share of the tuples of both streams, epoch by epoch, and return the rest."""
    shed = Shed(LOAD, 2 * LOAD, base=0.0, kind="semantic" if kind == SEMANTIC else "random")
    placing = find_placing(query.condition) if shed.is_semantic else None
    shedding = Shedding(shed, query.condition.sides, None if placing is None else placing.find_places)
    counts, kept = CellCounts.begin(), ([], [])
    for epoch, batches in enumerate(zip(*(query.cut(side, EPOCHS) for side in Side), strict=True)):
        reports = []
        for side, batch in zip(Side, batches, strict=True):
            shedder = shedding.open(side, epoch, round(LOAD * (1 + share)), counts=counts)
            kept[side].append(shedder.drop(batch)[0])
            reports.append(shedder.report)
        counts = counts.add(report for report in reports if report is not None)
    names = [table.column_names for table in query.tables]
    return [pa.Table.from_batches(part).select(name) for part, name in zip(kept, names, strict=True)]


def drop_known(query: Query, share: float) -> list[pa.Table]:
    """Drop the tuples that have the fewest partners in the whole join."""
    kept = []
    for table, alias in zip(query.tables, query.aliases, strict=True):
        order = np.argsort(query.count_partners(alias), kind="stable")
        rows = np.sort(order[round(share * table.num_rows) :])
        kept.append(table.take(pa.array(rows)))
    return kept


def measure(run: Run) -> Verdict:
    gains = {}
    for exponent in EXPONENTS:
        query = inputs.zipf(run.sized(60_000), exponent, run.seed).within(0.25)
        for share in SHARES:
            for kind in (RANDOM, SEMANTIC, KNOWN):
                run.announce(f"{query.name}, {kind}, {share:.0%}")
                left, right = drop_known(query, share) if kind == KNOWN else shed_tuples(query, kind, share)
                n_kept = left.num_rows + right.num_rows
                kept = query.of(left, right)
                found = kept.expected
                if share == CHECKED:
                    steps = list(replay(kept, Biclique((1, 1)), EPOCHS))
                    what = f"{query.name}, {kind}, {share:.0%}"
                    run.check(what, found, sum(step.results for step in steps))
                run.add(
                    query=query.name,
                    setting=kind,
                    dropped=1 - n_kept / query.volume,
                    share=share,
                    recall=found / query.expected,
                )
        half = run.rows.where(query=query.name, share=0.5)
        gains[query.name] = half.at("recall", setting=SEMANTIC) / half.at("recall", setting=RANDOM)
    run.parameters = {"tuples per stream": run.sized(60_000), "window": "a quarter", "epochs": EPOCHS}
    facts = {
        "with half of the tuples dropped, semantic keeps the results of random times": gains,
        "the share dropped differs from the one asked for by at most": max(
            abs(row["dropped"] - row["share"]) for row in run.rows
        ),
    }
    least, most = min(gains.values()), max(gains.values())
    return Verdict(most > 1.3 and least > 0.9, most, facts, partly=most > 1.1)


FIGURE = Figure(
    measure,
    "semantic / random, results kept with half of the tuples dropped, under the most skew",
    tuple(Panel(name, "dropped", "recall", "setting", {"query": name}) for name in NAMES),
    "query; setting; dropped; recall",
)
