"""What units receive: tuples and bytes per admitted tuple (BiStream, figures 11, 18 and 19).

p units, for the biclique half of them a side, y subgroups a side; copies sent per tuple:

    B_mat(a x b)    b of a left tuple, a of a right one          sqrt(p) if square
    B_bi(y)         1 to store it, p / (2 y) to probe            random routing: y = 1, pure hash: y = p / 2

At an input rate of v tuples/s that is v times as many a second.
"""

from bench.figures import inputs
from bench.figures.figure import Check, Column, Figure, Measured, Panel, Row, Setup, Verdict, yes_or_no
from bench.figures.query import Query
from bench.figures.replay import replay
from thetastream.models import Biclique, Matrix
from thetastream.models.base import Model

UNITS = 16
SQUARES = (2, 4, 6, 8)
"""Sides of the square matrices; 4, 16, 36 and 64 units."""
SUBGROUPS = (1, 2, 4, 8)
RATES = (5_000, 10_000, 20_000, 40_000)
"""Tuples of both streams per second."""


def settings(units: int) -> dict[str, tuple[Model, float]]:
    """Models of so many units, with the copies that the formula says, for streams in equal parts."""
    side = round(units**0.5)
    found: dict[str, tuple[Model, float]] = {"JM, square": (Matrix(side, side), side)}
    for y in SUBGROUPS:
        if y <= units // 2:
            name = "JB (random)" if y == 1 else f"JB-CR{y}"
            found[name] = Biclique(units // 2, subgroups=y), 1 + units / 2 / y
    return found


def against_units(setup: Setup) -> Measured:
    """Figures 18 and 19: copies per tuple as units are added."""
    rows: list[Row] = []
    checks = []
    # Both streams as long as each other, keys without skew.
    query = inputs.zipf(setup.sized(40_000), 0.0, setup.seed)
    expected = query.expected()
    for side in SQUARES:
        units = side * side
        for setting, (model, formula) in settings(units).items():
            setup.announce(f"bandwidth: {units} units, {setting}")
            row, check = _measured(query, model, expected)
            rows.append({"setting": setting, "units": units, "model": repr(model), "formula": formula, **row})
            checks.append(check)
    for row in rows:
        row["of_formula"] = row["received_per_tuple"] / row["formula"]
    sent = {(row["setting"], row["units"]): row["received_per_tuple"] for row in rows}
    most = SQUARES[-1] ** 2
    furthest = max(abs(row["of_formula"] - 1) for row in rows)
    ratio = sent["JB (random)", most] / sent["JB-CR8", most]
    text = (
        f"with {most} units random routing sends {sent['JB (random)', most]:.2f} copies of a tuple, the"
        f" square matrix {sent['JM, square', most]:.2f}, ContRand with 8 subgroups"
        f" {sent['JB-CR8', most]:.2f}: {ratio:.2f} times fewer than random; with {SQUARES[0] ** 2} units"
        f" they are {sent['JB (random)', 4]:.2f}, {sent['JM, square', 4]:.2f} and, with 2 subgroups,"
        f" {sent['JB-CR2', 4]:.2f}; all are within {100 * furthest:.1f} % of the formulas"
    )
    holds = ratio > 2 and furthest < 0.02
    return Measured(
        rows, Verdict(yes_or_no(holds), ratio, text), checks, {"query": query.on, "volume": query.volume}
    )


def against_rate(setup: Setup) -> Measured:
    """Figure 11: bytes per second as the input rate grows, an epoch a second."""
    rows: list[Row] = []
    checks = []
    for name in ("Q5", "equal streams"):
        for rate in RATES:
            size = setup.sized(rate)
            query = (
                inputs.q5(setup.scale).part(size / inputs.q5(setup.scale).volume)
                if name == "Q5"
                else inputs.zipf(size // 2, 0.0, setup.seed)
            )
            expected = query.expected()
            for setting, (model, _) in settings(UNITS).items():
                row, check = _measured(query, model, expected, epochs=1)
                mb = row["received_bytes_per_tuple"] * query.volume / 1e6
                rows.append({"query": name, "setting": setting, "rate": query.volume, "mb_per_s": mb, **row})
                checks.append(check)
    for row in rows:
        row["is_shown"] = row["rate"] == max(r["rate"] for r in rows if r["query"] == row["query"])
    by = {(row["query"], row["setting"], row["rate"]): row["mb_per_s"] for row in rows}
    rates = {
        name: sorted({rate for query, _, rate in by if query == name}) for name in ("Q5", "equal streams")
    }
    low, high = rates["equal streams"][0], rates["equal streams"][-1]
    growth = by["equal streams", "JB (random)", high] / by["equal streams", "JB (random)", low]
    ratio = by["equal streams", "JB (random)", high] / by["equal streams", "JB-CR4", high]
    of_matrix = {
        name: by[name, "JM, square", rates[name][-1]] / by[name, "JB-CR4", rates[name][-1]] for name in rates
    }
    text = (
        f"{high / low:.2f} times the input rate takes {growth:.2f} times the bytes; ContRand with 4"
        f" subgroups needs {ratio:.2f} times fewer bytes than random routing, and"
        f" {of_matrix['equal streams']:.2f} (equal streams) and {of_matrix['Q5']:.2f} (Q5) times fewer than"
        " the square matrix"
    )
    holds = abs(growth / (high / low) - 1) < 0.1 and ratio > 1.5
    return Measured(rows, Verdict(yes_or_no(holds), ratio, text), checks, {"units": UNITS})


def _measured(query: Query, model: Model, expected: int, epochs: int = 4) -> tuple[Row, Check]:
    steps = list(replay(query, model, epochs))
    admitted = sum(step.total("left") + step.total("right") for step in steps)
    row = {
        "received_per_tuple": sum(step.total("received") for step in steps) / admitted,
        "received_bytes_per_tuple": sum(step.total("received_bytes") for step in steps) / admitted,
    }
    return row, Check(f"{query.name}, {model!r}", expected, sum(step.results for step in steps))


COPIES: tuple[Column, ...] = (
    Column("copies received per tuple", "received_per_tuple", "{:.2f}"),
    Column("bytes received per tuple", "received_bytes_per_tuple", "{:.0f}"),
)

FIGURES = (
    Figure(
        name="bandwidth-by-rate",
        ratio_of="random routing / ContRand, bytes",
        title="Bandwidth against input rate",
        source="BiStream, figure 11",
        claim="Bandwidth grows in proportion to the input rate, and ContRand routing keeps the biclique's"
        " far below that of random routing.",
        panels=tuple(
            Panel(
                f"{name}, {UNITS} units",
                "rate",
                "mb_per_s",
                "setting",
                ("input (tuples/s)", "received (MB/s)"),
                {"query": name},
            )
            for name in ("Q5", "equal streams")
        ),
        columns=(
            Column("query", "query"),
            Column("setting", "setting"),
            Column("input (tuples/s)", "rate", "{:,}"),
            Column("MB/s", "mb_per_s", "{:.2f}"),
            *COPIES,
        ),
        measure=against_rate,
        is_in_table=lambda row: row["is_shown"],
    ),
    Figure(
        name="bandwidth-by-units",
        ratio_of="random routing / ContRand, copies",
        title="Bandwidth against units",
        source="BiStream, figures 18 and 19",
        claim="What is sent grows with the units, fastest for random routing and with the square root for"
        " the matrix; with more subgroups it grows more slowly.",
        panels=(
            Panel(
                "equality, streams of equal length",
                "units",
                "received_per_tuple",
                "setting",
                ("units", "copies received per tuple"),
            ),
        ),
        columns=(
            Column("units", "units"),
            Column("setting", "setting"),
            *COPIES,
            Column("formula", "formula", "{:.2f}"),
        ),
        measure=against_units,
    ),
)
