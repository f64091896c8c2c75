"""Memory of units against processed volume (BiStream, figure 6).

W is what a unit holds, p the number of units. The biclique stores every tuple once; the matrix of a rows and
b columns stores a left tuple b times and a right one a times:

    W_bi = (|R| + |S|) / p        W_mat = (b |R| + a |S|) / p

A square matrix holds sqrt(p) times as much. If the sizes of the streams are known and far apart, a matrix
of another shape holds less; the best one is shown too.
"""

from bench.figures import inputs
from bench.figures.figure import Check, Column, Figure, Measured, Panel, Row, Setup, Verdict, yes_or_no
from bench.figures.query import Query
from bench.figures.replay import held, replay
from thetastream.models import Biclique, Matrix
from thetastream.models.base import Model

UNITS = 16
EPOCHS = 10
WINDOW_EPOCHS = 32
SHARES = (8, 4, 2)
"""Windows are an 8th, a quarter and half of the stream."""


def shapes(units: int) -> list[tuple[int, int]]:
    """All matrices of so many units.

    >>> shapes(4)
    [(1, 4), (2, 2), (4, 1)]
    """
    return [(rows, units // rows) for rows in range(1, units + 1) if units % rows == 0]


def best_matrix(query: Query, units: int) -> Matrix:
    """The shape that stores fewest copies of streams of these sizes."""
    left, right = (table.num_rows for table in query.tables)
    return Matrix(*min(shapes(units), key=lambda shape: shape[1] * left + shape[0] * right))


def best_biclique(query: Query, units: int) -> Biclique:
    """Units allotted to the sides as the streams are long: the mean stays, the largest unit holds less."""
    left, right = (table.num_rows for table in query.tables)
    mine = min(units - 1, max(1, round(units * left / (left + right))))
    return Biclique((mine, units - mine))


def settings(query: Query) -> dict[str, Model]:
    """JM and JB of 16 units; subgroups would change nothing about what is stored."""
    return {
        "JM, square": Matrix(4, 4),
        "JM, best shape": best_matrix(query, UNITS),
        "JB": Biclique(UNITS // 2),
        "JB, best split": best_biclique(query, UNITS),
    }


def by_volume(setup: Setup) -> Measured:
    """Figure 6a."""
    rows: list[Row] = []
    checks = []
    queries = [make(setup.scale) for make in inputs.TPCH]
    queries.append(inputs.handshake(setup.sized(150_000), setup.seed))
    for query in queries:
        expected = query.expected()
        for setting, model in settings(query).items():
            setup.announce(f"memory: {query.name}, {setting}")
            steps = []
            for step in replay(query, model, EPOCHS):
                steps.append(step)
                bytes_held = [unit.mlv_bytes for unit in step.units]
                rows.append(
                    {
                        "query": query.name,
                        "setting": setting,
                        "model": repr(model),
                        "epoch": len(steps),
                        "volume": step.volume,
                        "tuples_per_unit": sum(held(steps)) / UNITS,
                        "mb_per_unit": sum(bytes_held) / UNITS / 1e6,
                        "mb_of_largest": max(bytes_held) / 1e6,
                    }
                )
            checks.append(Check(f"{query.name}, {setting}", expected, sum(step.results for step in steps)))
    for row in rows:
        own = next(
            r
            for r in rows
            if r["setting"] == "JB" and (r["query"], r["epoch"]) == (row["query"], row["epoch"])
        )
        row["mb_over_jb"] = row["mb_per_unit"] / own["mb_per_unit"]
    last = {(row["query"], row["setting"]): row["mb_over_jb"] for row in rows if row["epoch"] == EPOCHS}
    names = [query.name for query in queries]
    square = [last[name, "JM, square"] for name in names]
    largest = {
        name: {
            row["setting"]: row["mb_of_largest"]
            for row in rows
            if row["query"] == name and row["epoch"] == EPOCHS
        }
        for name in names
    }
    split = max(held["JB"] / held["JB, best split"] for held in largest.values())
    shaped = [held["JM, best shape"] / held["JB, best split"] for held in largest.values()]
    best = ", ".join(f"{last[name, 'JM, best shape']:.2f} ({name})" for name in names)
    ratio = min(square)
    text = (
        f"with {UNITS} units a square matrix holds {ratio:.2f} to {max(square):.2f} times the bytes of the"
        f" biclique per unit, sqrt({UNITS}) = 4 by the formula; if the sizes of the streams are known"
        f" beforehand, a matrix of the best shape holds {best} times as much, and a biclique whose units are"
        f" allotted in proportion has a largest unit up to {split:.2f} times smaller than one with as many"
        f" units a side; best against best, the matrix's largest unit holds {min(shaped):.2f} to"
        f" {max(shaped):.2f} times the biclique's"
    )
    parameters = {"units": UNITS, "epochs": EPOCHS, "scale_factor": inputs.SCALE_FACTOR * setup.scale}
    return Measured(rows, Verdict(yes_or_no(ratio > 3), ratio, text), checks, parameters)


def by_window(setup: Setup) -> Measured:
    """Figure 6b."""
    rows: list[Row] = []
    checks = []
    whole = inputs.band(setup.scale)
    for share in SHARES:
        query = whole.within(1 / share)
        expected = query.expected()
        for setting, model in {"JM": Matrix(4, 4), "JB": Biclique(UNITS // 2)}.items():
            setup.announce(f"memory: window of 1/{share}, {setting}")
            steps = []
            for step in replay(query, model, WINDOW_EPOCHS):
                steps.append(step)
                rows.append(
                    {
                        "setting": setting,
                        "window": f"1/{share}",
                        "name": f"{setting}, window 1/{share}",
                        "epoch": len(steps),
                        "volume": step.volume,
                        "tuples_per_unit": sum(held(steps)) / UNITS,
                        "mb_per_unit": sum(unit.mlv_bytes for unit in step.units) / UNITS / 1e6,
                    }
                )
            checks.append(
                Check(f"window 1/{share}, {setting}", expected, sum(step.results for step in steps))
            )
    peaks = {}
    for share in SHARES:
        for setting in ("JM", "JB"):
            mine = [row for row in rows if (row["setting"], row["window"]) == (setting, f"1/{share}")]
            # Full after one window, and a tenth more until the first whole archive period has expired.
            full = WINDOW_EPOCHS // share + 2
            at_full, after = mine[full - 1]["mb_per_unit"], [row["mb_per_unit"] for row in mine[full:]]
            peaks[setting, share] = max(after)
            for row in mine:
                row["growth_once_full"] = max(after) / at_full
    growth = max(row["growth_once_full"] for row in rows)
    spread = peaks["JB", SHARES[-1]] / peaks["JB", SHARES[0]]
    ratio = peaks["JM", SHARES[0]] / peaks["JB", SHARES[0]]
    text = (
        f"once the window is full, memory grows by at most {(growth - 1) * 100:.0f} % until the end; a window"
        f" {SHARES[0] // SHARES[-1]} times as long holds {spread:.2f} times the bytes; the square matrix"
        f" holds {ratio:.2f} times what the biclique holds"
    )
    parameters = {"units": UNITS, "epochs": WINDOW_EPOCHS, "query": whole.name, "volume": whole.volume}
    holds = growth < 1.25 and 0.75 < spread / (SHARES[0] / SHARES[-1]) < 1.25
    return Measured(rows, Verdict(yes_or_no(holds and ratio > 3, holds), ratio, text), checks, parameters)


VOLUME = ("processed volume (tuples)", "MB per unit (mean)")

FIGURES = (
    Figure(
        name="memory-by-volume",
        ratio_of="square matrix / biclique, bytes",
        title="Memory per unit against processed volume",
        source="BiStream, figure 6a",
        claim="With full history, memory per unit grows with the volume, and the join-matrix needs a"
        " multiple of the join-biclique's because it stores copies.",
        panels=tuple(
            Panel(name, "volume", "mb_per_unit", "setting", VOLUME, {"query": name})
            for name in ("Q5", "Q7", "Band", "handshake")
        ),
        columns=(
            Column("query", "query"),
            Column("setting", "setting"),
            Column("model", "model", "`{}`"),
            Column("volume (tuples)", "volume", "{:,}"),
            Column("tuples per unit", "tuples_per_unit", "{:,.0f}"),
            Column("MB per unit", "mb_per_unit", "{:.3f}"),
            Column("MB, largest unit", "mb_of_largest", "{:.3f}"),
            Column("/ JB", "mb_over_jb", "{:.2f}"),
        ),
        measure=by_volume,
        is_in_table=lambda row: row["epoch"] == EPOCHS,
    ),
    Figure(
        name="memory-by-window",
        ratio_of="square matrix / biclique, bytes",
        title="Memory per unit with sliding windows",
        source="BiStream, figure 6b",
        claim="With a sliding window memory stops growing when the window is full; how much it is depends on"
        " the window's length.",
        panels=(Panel("Band, windows as shares of the stream", "volume", "mb_per_unit", "name", VOLUME),),
        columns=(
            Column("setting", "setting"),
            Column("window (share of the stream)", "window"),
            Column("tuples per unit, at the end", "tuples_per_unit", "{:,.0f}"),
            Column("MB per unit, at the end", "mb_per_unit", "{:.3f}"),
            Column("largest / when full", "growth_once_full", "{:.2f}"),
        ),
        measure=by_window,
        is_in_table=lambda row: row["epoch"] == WINDOW_EPOCHS,
    ),
)
