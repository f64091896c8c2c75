"""Response time and throughput in Spark: the chain beside models that need one exchange.

The handshake chain finds a pair when its tuples pass each other, an epoch a worker, or when one expires or
silence falls: half a window, not half an epoch. Fast-forwarded, every tuple visits all workers at once.
"""

from statistics import median

from bench.esj.inputs import keyed
from bench.esj.streamed import Plan, filed, run
from bench.figures.figure import Check, Column, Figure, Measured, Panel, Row, Setup, Verdict, yes_or_no
from thetastream.models import Biclique, Chain, Split
from thetastream.models.base import Model

UNITS = 4
PER_EPOCH, WINDOW_EPOCHS = 4_000, 2
"""Tuples of a stream; the window."""
PLAN = Plan(epochs=12, first=4, last=8)
WARM_EPOCHS = 4


def models(units: int) -> dict[str, Model]:
    """All four with as many units."""
    return {
        "chain": Chain(units),
        "chain, fast-forward": Chain(units, fast_forward=True),
        "split": Split(units),
        "biclique": Biclique(units // 2),
    }


def latency(setup: Setup) -> Measured:
    """All models in turn, there and back."""
    per_epoch = setup.sized(PER_EPOCH)
    query = filed(keyed(per_epoch * PLAN.epochs, WINDOW_EPOCHS * per_epoch, setup.seed), PLAN.epochs)
    short = filed(keyed(per_epoch * WARM_EPOCHS, WINDOW_EPOCHS * per_epoch, setup.seed), WARM_EPOCHS)
    asked = models(UNITS)
    setup.announce("latency: warming up Spark")
    for model in (asked["split"], asked["chain"]):
        run(setup.clock, short, model, Plan(WARM_EPOCHS, 1, 2))
    runs: dict[str, list[Row]] = {name: [] for name in asked}
    checks: list[Check] = []
    for turn in range(setup.repeat):
        for name in list(asked)[:: -1 if turn % 2 else 1]:
            row, check = run(setup.clock, query, asked[name], PLAN)
            setup.announce(
                f"{turn + 1}/{setup.repeat} {name}: response {row['response_ms']:.0f} ms, epoch"
                f" {row['epoch_ms']:.0f} ms, {row['tuples_per_s']:,.0f} tuples/s"
            )
            runs[name].append(row)
            checks.append(check)
    rows = [
        {
            "model": name,
            "series": "4 units",
            "setting": repr(asked[name]),
            **{key: median(row[key] for row in found) for key in found[0]},
        }
        for name, found in runs.items()
    ]
    by = {row["model"]: row for row in rows}
    chain, fast, split, biclique = (by[name] for name in asked)
    ratio = chain["response_ms"] / split["response_ms"]
    rates = ", ".join(f"{name} {row['tuples_per_s']:,.0f}" for name, row in by.items())
    text = (
        f"on two cores a pair comes {chain['response_ms']:,.0f} ms after its last tuple on the chain, in its"
        f" {chain['response_epochs']:.1f}th epoch on average ({chain['at_once']:.0%} of the pairs in the"
        f" first), {ratio:.2f} times SplitJoin's {split['response_ms']:,.0f} ms;"
        f" {fast['response_ms']:,.0f} ms fast-forwarded and {biclique['response_ms']:,.0f} ms on the"
        f" biclique, in one epoch; tuples/s are {rates}"
    )
    holds = ratio > 2 and fast["response_ms"] < 1.5 * split["response_ms"]
    return Measured(
        rows,
        Verdict(yes_or_no(holds, ratio > 1), ratio, text),
        checks,
        {
            "units": UNITS,
            "tuples_of_a_stream_and_epoch": per_epoch,
            "window (epochs)": WINDOW_EPOCHS,
            "epochs with input": PLAN.epochs,
            "judged": f"pairs whose last tuple is of files {PLAN.first + 1} to {PLAN.last}",
        },
        [{"model": name, **row} for name, found in runs.items() for row in found],
    )


FIGURE = Figure(
    name="latency-by-model",
    title="Latency of the chain and of models with one exchange, in Spark",
    source="ESJ and SplitJoin, latency of handshake join",
    claim="On the handshake chain a pair waits until its tuples pass each other; tuples that visit all"
    " workers at once, fast-forwarded or by SplitJoin, find their partners at once.",
    ratio_of="chain / split, mean response",
    panels=(
        Panel("response time", "model", "response_ms", "series", ("", "arrival to pair (ms)")),
        Panel("throughput", "model", "tuples_per_s", "series", ("", "tuples/s")),
    ),
    columns=(
        Column("model", "model"),
        Column("setting", "setting", "`{}`"),
        Column("response, mean (ms)", "response_ms", "{:,.0f}"),
        Column("median", "response_ms_p50", "{:,.0f}"),
        Column("99 %", "response_ms_p99", "{:,.0f}"),
        Column("epochs", "response_epochs", "{:.2f}"),
        Column("in the epoch of the last tuple", "at_once", "{:.0%}"),
        Column("epoch, median (ms)", "epoch_ms", "{:,.0f}"),
        Column("tuples/s", "tuples_per_s", "{:,.0f}"),
    ),
    measure=latency,
    needs_spark=True,
    truth="a count in NumPy",
)
