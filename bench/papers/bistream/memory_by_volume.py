"""Memory per unit against processed volume (BiStream, figure 6a).

With full history, memory per unit grows with the volume, and the join-matrix needs a multiple of the
join-biclique's because it stores copies.

W is what a unit holds, p the number of units. The biclique stores every tuple once; the matrix of a rows and
b columns stores a left tuple b times and a right one a times:

    W_bi = (|R| + |S|) / p        W_mat = (b |R| + a |S|) / p

A square matrix holds sqrt(p) times as much. If the sizes of the streams are known and far apart, a matrix
of another shape holds less; the best one is shown too.
"""

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.replay import bytes_held, held
from bench.papers import inputs
from bench.papers.bistream.models import UNITS, best_biclique, best_matrix, square
from thetastream.models import Biclique

EPOCHS = 10
NAMES = (*inputs.TPCH, "handshake")


def measure(run: Run) -> Verdict:
    """Measure the bytes of all units after each epoch. Subgroups would not change what is stored."""
    queries = [make(run.scale) for make in inputs.TPCH.values()]
    queries.append(inputs.handshake(run.sized(150_000), run.seed))
    for query in queries:
        models = {
            "JM, square": square(UNITS),
            "JM, best shape": best_matrix(query, UNITS),
            "JB": Biclique(UNITS // 2),
            "JB, best split": best_biclique(query, UNITS),
        }
        for setting, model in models.items():
            steps = run.replay(query, model, EPOCHS, f"{query.name}, {setting}")
            for epoch, step in enumerate(steps, 1):
                run.add(
                    query=query.name,
                    setting=setting,
                    model=repr(model),
                    epoch=epoch,
                    volume=step.volume,
                    tuples_per_unit=sum(held(steps[:epoch])) / UNITS,
                    mb_per_unit=sum(bytes_held(step)) / UNITS / 1e6,
                    mb_of_largest=max(bytes_held(step)) / 1e6,
                )
    rows = run.rows
    for row in rows:
        same = {"query": row["query"], "epoch": row["epoch"]}
        row["mb_over_jb"] = row["mb_per_unit"] / rows.at("mb_per_unit", setting="JB", **same)
    run.parameters = {"units": UNITS, "epochs": EPOCHS, "scale_factor": inputs.SCALE_FACTOR * run.scale}
    last = rows.where(epoch=EPOCHS)
    squares = last.by("query", "mb_over_jb", setting="JM, square")
    best = last.by("query", "mb_over_jb", setting="JM, best shape")
    largest = {name: last.by("setting", "mb_of_largest", query=name) for name in NAMES}
    split = {name: mb["JB"] / mb["JB, best split"] for name, mb in largest.items()}
    shaped = {name: mb["JM, best shape"] / mb["JB, best split"] for name, mb in largest.items()}
    ratio = min(squares.values())
    facts = {
        f"with {UNITS} units, a square matrix holds the bytes of the biclique times": squares,
        "the least is": ratio,
        "the formula says": UNITS**0.5,
        "a matrix of the best shape for sizes known beforehand holds the bytes of the biclique times": best,
        "a biclique with as many units a side has the largest unit of one in proportion times": split,
        "best against best, the largest unit of the matrix holds that of the biclique times": shaped,
    }
    return Verdict(ratio > 3, ratio, facts)


FIGURE = Figure(
    measure,
    "square matrix / biclique, bytes",
    tuple(Panel(name, "volume", "mb_per_unit", "setting", {"query": name}) for name in NAMES),
    "query; setting; model; volume; tuples_per_unit; mb_per_unit; mb_of_largest; mb_over_jb",
    is_in_table=lambda row: row["epoch"] == EPOCHS,
)
