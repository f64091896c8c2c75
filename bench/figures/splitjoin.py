"""SplitJoin's figures: throughput and latency against cores and window, selectivity, ordering.

k cores get every tuple and store a k-th of each window. The paper's cores compare a tuple with all of their
part of the window, so that the work of a tuple falls with k:

    nested loop    comparisons per tuple and core    W / k
    index          probes per tuple and core         1, of an index over W / k tuples

``index="scan"`` is the nested loop. Our default is the index: less work by orders of magnitude, of which the
cores share only the storing and the results.
"""

from typing import Any

from bench.figures import inputs
from bench.figures.figure import Check, Column, Figure, Measured, Panel, Row, Setup, Verdict, yes_or_no
from bench.figures.query import Query
from bench.figures.replay import cpu_of_units, replay
from bench.figures.timing import Setting, Timed
from thetastream.models import Split

CORES = (1, 2, 4, 8)
WINDOWS = (1_024, 4_096, 16_384)
"""Tuples of a stream."""
REPLAYED = {True: 32_768, False: 131_072}
"""Tuples of a stream: fewer where every tuple is compared with the whole window."""
REPLAYS = 2
SPARK_CORES = {True: (1, 2, 4), False: (1, 2)}
SPARK_WINDOWS = {True: (2_048, 8_192), False: (8_192, 65_536)}
SPARK_TUPLES = {True: 98_304, False: 393_216}
"""Of a stream."""
ORDERED_WINDOW = 16_384
REACHES = (10, 40, 160, 320)
ORDERS: tuple[str | int | None, ...] = (None, 1000, 100, 10, "outer", "strict")
EPOCHS, WARMUP = 8, 4
SPARK_EPOCHS, SPARK_WARMUP = 6, 3
"""Parts of a stream, and those in which the window fills and nothing is measured."""
SHORT, SHORT_EPOCHS, SHORT_WARMUP = 1_024, 17, 10
"""Where latency is measured: tuples of a stream in an epoch, epochs, those not measured."""
SHORT_WINDOWS = (1_024, 8_192)


KINDS = ("nested loop", "index")


def windowed(query: Query, window: int, is_scanned: bool = False) -> Query:
    """The query inside a window of so many tuples of each stream."""
    found = query.within(window / query.tables[0].num_rows)
    return found if not is_scanned else found.scanned()


def kind(query: Query) -> str:
    """How a probe finds its partners."""
    return "nested loop" if query.is_scanned else "index"


def bounds_against_cores(setup: Setup) -> Measured:
    """Figures 12 to 16, unit by unit: what cores of their own would allow."""
    rows: list[Row] = []
    checks = []
    for is_scanned in (True, False):
        whole = inputs.handshake(setup.sized(REPLAYED[is_scanned]), setup.seed)
        for window in WINDOWS:
            query = windowed(whole, setup.sized(window), is_scanned)
            expected = query.expected()
            for cores in CORES:
                setup.announce(f"splitjoin: {kind(query)}, window {window}, {cores} cores")
                replays = [list(replay(query, Split(cores), EPOCHS)) for _ in range(REPLAYS)]
                steps = replays[0]
                measured = range(WARMUP, EPOCHS)
                tuples = steps[-1].volume - steps[WARMUP - 1].volume
                per_unit = cpu_of_units(replays, measured)
                rows.append(
                    {
                        "kind": kind(query),
                        "window": setup.sized(window),
                        "cores": cores,
                        "name": f"{kind(query)}, window {setup.sized(window):,}",
                        "bound_tuples_per_s": tuples / max(per_unit),
                        "cpu_us_per_tuple": 1e6 * sum(per_unit) / tuples,
                        "candidates_per_tuple": sum(steps[epoch].total("candidates") for epoch in measured)
                        / tuples,
                    }
                )
                checks.append(
                    Check(f"{rows[-1]['name']}, {cores} cores", expected, sum(s.results for s in steps))
                )
    for row in rows:
        one = _row(rows, row["kind"], row["window"], 1)
        row["speed_up"] = row["bound_tuples_per_s"] / one["bound_tuples_per_s"]
    largest, smallest = setup.sized(WINDOWS[-1]), setup.sized(WINDOWS[0])
    loop, index = (_row(rows, name, largest, CORES[-1])["speed_up"] for name in KINDS)
    slower, slower_index = (
        _row(rows, name, smallest, 1)["bound_tuples_per_s"]
        / _row(rows, name, largest, 1)["bound_tuples_per_s"]
        for name in KINDS
    )
    gain = (
        _row(rows, "index", largest, 1)["bound_tuples_per_s"]
        / _row(rows, "nested loop", largest, CORES[-1])["bound_tuples_per_s"]
    )
    cached = " (a smaller part of the window suits the processor's cache better)" if loop > CORES[-1] else ""
    text = (
        f"with the paper's nested loop and the longest window, {CORES[-1]} cores allow {loop:.2f} times the"
        f" throughput of one{cached}, and a"
        f" window {largest // smallest} times as long costs a factor of {slower:.2f}; with the index these"
        f" are {index:.2f} and {slower_index:.2f}, because every core still probes with every tuple; one"
        f" core with the index allows {gain:.1f} times what {CORES[-1]} cores of the nested loop allow"
    )
    parameters = {
        "tuples_per_stream": f"{setup.sized(REPLAYED[True])} (nested loop), {setup.sized(REPLAYED[False])}"
        " (index)",
        "epochs": EPOCHS,
    }
    verdict = Verdict(yes_or_no(loop > 0.6 * CORES[-1], loop > 2), loop, text)
    return Measured(rows, verdict, checks, parameters)


def _row(rows: list[Row], name: str, window: int, cores: int) -> Row:
    return next(row for row in rows if (row["kind"], row["window"], row["cores"]) == (name, window, cores))


def throughput(setup: Setup) -> Measured:
    """Figures 12 to 16 as a user has them: whole queries in Spark."""
    settings, described = [], {}
    for is_scanned in (True, False):
        whole = inputs.handshake(setup.sized(SPARK_TUPLES[is_scanned]), setup.seed)
        for window in SPARK_WINDOWS[is_scanned]:
            query = windowed(whole, setup.sized(window), is_scanned)
            for cores in SPARK_CORES[is_scanned]:
                name = f"{kind(query)}, window {setup.sized(window):,}, {cores} cores"
                settings.append(Setting(name, query, Split(cores), SPARK_EPOCHS, SPARK_WARMUP))
                described[name] = {
                    "kind": kind(query),
                    "window": setup.sized(window),
                    "cores": cores,
                    "name": f"{kind(query)}, window {setup.sized(window):,}",
                }
    timed = setup.clock.compare(settings, setup.repeat, setup.announce)
    rows = timed_rows(timed, described)
    return Measured(
        rows,
        throughput_verdict(rows),
        [one.check for one in timed.values()],
        {
            "tuples_per_stream": f"{setup.sized(SPARK_TUPLES[True])} (nested loop),"
            f" {setup.sized(SPARK_TUPLES[False])} (index)",
            "epochs": SPARK_EPOCHS,
            "measured_epochs": SPARK_EPOCHS - SPARK_WARMUP,
        },
        runs_of(timed),
    )


def throughput_verdict(rows: list[Row]) -> Verdict:
    """What whole queries say of cores and windows."""
    windows = {name: sorted({row["window"] for row in rows if row["kind"] == name}) for name in KINDS}
    short, long = windows["nested loop"]
    rate = {(row["kind"], row["window"], row["cores"]): row["tuples_per_s"] for row in rows}
    loop = {cores: rate["nested loop", long, cores] for cores in SPARK_CORES[True]}
    index = {cores: rate["index", long, cores] for cores in SPARK_CORES[False]}
    most = SPARK_CORES[True][-1]
    ratio = loop[2] / loop[1]
    longer = loop[1] / rate["nested loop", short, 1]
    text = (
        f"in whole queries on two cores, nested loop and window {long:,}, 2 join cores reach {ratio:.2f} and"
        f" {most} join cores {loop[most] / loop[1]:.2f} times the throughput of one (more than 2 cannot"
        f" speed up here); with the index 2 join cores reach {index[2] / index[1]:.2f} times, and one join"
        f" core with the index {index[1] / loop[2]:.1f} times what 2 with the nested loop reach; from window"
        f" {short:,} to {long:,} the throughput of one core changes by a factor of {longer:.2f}, because an"
        " epoch holds many short windows and each is cut into subindexes of its own"
    )
    grows, falls = ratio > 1.5, longer < 0.8
    return Verdict(yes_or_no(grows and falls, ratio > 1.1 or falls), ratio, text)


def selectivity(setup: Setup) -> Measured:
    """Figure 17."""
    settings, described = [], {}
    window = setup.sized(4_096)
    for is_scanned in (True, False):
        for reach in REACHES if is_scanned else (REACHES[0], REACHES[-1]):
            whole = inputs.handshake(setup.sized(SPARK_TUPLES[True]), setup.seed, reach)
            query = windowed(whole, window, is_scanned)
            name = f"{kind(query)}, reach {reach}"
            settings.append(Setting(name, query, Split(2), SPARK_EPOCHS, SPARK_WARMUP))
            described[name] = {
                "kind": kind(query),
                "reach": reach,
                "selectivity": (2 * reach + 1) / 9999 * 2 * reach / 9999,
            }
    timed = setup.clock.compare(settings, setup.repeat, setup.announce)
    rows = timed_rows(timed, described)
    by_kind = {name: [row["tuples_per_s"] for row in rows if row["kind"] == name] for name in KINDS}
    ratio = by_kind["nested loop"][-1] / by_kind["nested loop"][0]
    index = by_kind["index"][-1] / by_kind["index"][0]
    times = rows[len(REACHES) - 1]["selectivity"] / rows[0]["selectivity"]
    results = rows[len(REACHES) - 1]["results_per_tuple"]
    nearly = by_kind["nested loop"][1] / by_kind["nested loop"][0]
    text = (
        f"when {times:,.0f} times as many pairs match ({results:.1f} results a tuple at the end), the nested"
        f" loop keeps {ratio:.2f} of its throughput and the index {index:.2f}; of the first factor of"
        f" {rows[1]['selectivity'] / rows[0]['selectivity']:.0f} the nested loop keeps {nearly:.2f}"
    )
    return Measured(
        rows,
        Verdict(yes_or_no(nearly > 0.8 and ratio < 1, ratio < 1), ratio, text),
        [one.check for one in timed.values()],
        {"window": window, "cores": 2, "tuples_per_stream": setup.sized(SPARK_TUPLES[True])},
        runs_of(timed),
    )


def ordering(setup: Setup) -> Measured:
    """Figure 19."""
    whole = inputs.handshake(setup.sized(SPARK_TUPLES[False]), setup.seed, 40)
    query = windowed(whole, setup.sized(ORDERED_WINDOW))
    settings, described = [], {}
    for order in ORDERS:
        name = "none" if order is None else str(order)
        settings.append(Setting(f"order {name}", query, Split(2), SPARK_EPOCHS, SPARK_WARMUP, order))
        described[f"order {name}"] = {"order": name, "series": "index, 2 cores"}
    timed = setup.clock.compare(settings, setup.repeat, setup.announce)
    rows = timed_rows(timed, described)
    for row in rows:
        row["of_unordered"] = row["tuples_per_s"] / rows[0]["tuples_per_s"]
    share = {row["order"]: row["of_unordered"] for row in rows}
    spread = max(share[str(n)] for n in (1000, 100, 10)) / min(share[str(n)] for n in (1000, 100, 10))
    ratio = share["outer"]
    text = (
        f"outer order keeps {ratio:.2f} of the unordered throughput, strict order {share['strict']:.2f}, an"
        f" interval of 1,000 arrivals {share['1000']:.2f}; the interval itself makes a difference of a"
        f" factor {spread:.2f}, because an epoch is gathered and sorted once whatever the interval is"
    )
    falls = share["1000"] >= share["outer"] >= share["strict"]
    return Measured(
        rows,
        Verdict(yes_or_no(ratio < 1 and falls, ratio < 1), ratio, text),
        [one.check for one in timed.values()],
        {"window": setup.sized(ORDERED_WINDOW), "cores": 2, "reach": 40},
        runs_of(timed),
    )


def latency(setup: Setup) -> Measured:
    """Figure 18."""
    whole = inputs.handshake(SHORT * SHORT_EPOCHS, setup.seed)
    settings, described = [], {}
    for is_scanned, windows in ((True, SHORT_WINDOWS), (False, SHORT_WINDOWS[-1:])):
        for window in windows:
            query = windowed(whole, window, is_scanned)
            for cores in (1, 4):
                name = f"{kind(query)}, window {window:,}, {cores} cores, short epochs"
                settings.append(Setting(name, query, Split(cores), SHORT_EPOCHS, SHORT_WARMUP))
                described[name] = {
                    "kind": kind(query),
                    "window": window,
                    "cores": cores,
                    "name": f"{kind(query)}, window {window:,}",
                }
    timed = setup.clock.compare(settings, setup.repeat, setup.announce)
    rows = timed_rows(timed, described)
    for row, one in zip(rows, timed.values(), strict=True):
        row["latency_ms_p50"] = one.latency_ms(50)
    least, most = SHORT_WINDOWS
    low, high = (f(row["latency_ms_p50"] for row in rows) for f in (min, max))
    longer = (
        _row(rows, "nested loop", most, 1)["latency_ms_p50"]
        / _row(rows, "nested loop", least, 1)["latency_ms_p50"]
    )
    more = (
        _row(rows, "nested loop", most, 4)["latency_ms_p50"]
        / _row(rows, "nested loop", most, 1)["latency_ms_p50"]
    )
    text = (
        f"median latencies lie between {low:,.0f} and {high:,.0f} ms, the floor of a micro-batch, where the"
        f" paper's are those of single tuples; the longer window takes {longer:.2f} times"
        f" as long (nested loop, one join core), 4 join cores {more:.2f} times as long as one"
    )
    return Measured(
        rows,
        Verdict(yes_or_no(longer > 2 and more < 0.8, more < 0.95 and longer > 1.1), longer, text),
        [one.check for one in timed.values()],
        {"tuples_per_stream_and_epoch": SHORT, "measured_epochs": SHORT_EPOCHS - SHORT_WARMUP},
        runs_of(timed),
    )


def timed_rows(timed: dict[str, Timed], described: dict[str, Row]) -> list[Row]:
    """Medians with what they are of."""
    return [{**described[name], **one.median} for name, one in timed.items()]


def runs_of(timed: dict[str, Timed]) -> list[Row]:
    """Single runs, epochs left out."""
    keep = ("setting", "tuples_per_s", "cpu_us_per_tuple", "epoch_ms_p50", "load_before")
    return [{key: run[key] for key in keep} for one in timed.values() for run in one.runs]


RATE: tuple[Column, ...] = (
    Column("tuples/s", "tuples_per_s", "{:,.0f}"),
    Column("CPU µs/tuple", "cpu_us_per_tuple", "{:.1f}"),
    Column("results/tuple", "results_per_tuple", "{:.2f}"),
    Column("epoch p50 (ms)", "epoch_ms_p50", "{:,.0f}"),
)
CORES_AND_WINDOW: tuple[Column, ...] = (
    Column("partners found by", "kind"),
    Column("window (tuples a stream)", "window", "{:,}"),
    Column("join cores", "cores"),
)
SCALING: dict[str, Any] = {
    "source": "SplitJoin, figures 12 to 16",
    "claim": "Throughput grows almost in proportion to the join cores and falls as the window grows.",
}

FIGURES = (
    Figure(
        name="splitjoin-cores-bound",
        ratio_of="8 cores / 1, nested loop",
        title="SplitJoin: what cores of their own would allow",
        panels=tuple(
            Panel(
                title,
                "cores",
                "bound_tuples_per_s",
                "name",
                ("join cores", "tuples/s, bound"),
                {"kind": name},
                "xy",
            )
            for name, title in (
                ("nested loop", "nested loop, as in the paper"),
                ("index", "index, our default"),
            )
        ),
        columns=(
            *CORES_AND_WINDOW,
            Column("bound (tuples/s)", "bound_tuples_per_s", "{:,.0f}"),
            Column("of one core", "speed_up", "{:.2f}"),
            Column("CPU µs/tuple, all cores", "cpu_us_per_tuple", "{:.2f}"),
            Column("compared/tuple", "candidates_per_tuple", "{:,.1f}"),
        ),
        measure=bounds_against_cores,
        **SCALING,
    ),
    Figure(
        name="splitjoin-throughput",
        ratio_of="2 join cores / 1, nested loop, tuples/s",
        title="SplitJoin: throughput of whole queries against cores and window",
        panels=tuple(
            Panel(title, "cores", "tuples_per_s", "name", ("join cores", "tuples/s"), {"kind": name})
            for name, title in (
                ("nested loop", "nested loop, as in the paper"),
                ("index", "index, our default"),
            )
        ),
        columns=(*CORES_AND_WINDOW, *RATE),
        measure=throughput,
        needs_spark=True,
        **SCALING,
    ),
    Figure(
        name="splitjoin-selectivity",
        ratio_of="most / least selective, nested loop, tuples/s",
        title="SplitJoin: throughput against selectivity",
        source="SplitJoin, figure 17",
        claim="Throughput hardly depends on selectivity while comparisons are most of the work, and falls"
        " when results become the work.",
        panels=(
            Panel(
                "2 join cores",
                "selectivity",
                "tuples_per_s",
                "kind",
                ("share of pairs that match", "tuples/s"),
                log="x",
            ),
        ),
        columns=(
            Column("partners found by", "kind"),
            Column("band ±", "reach"),
            Column("selectivity", "selectivity", "{:.1e}"),
            *RATE,
        ),
        measure=selectivity,
        needs_spark=True,
    ),
    Figure(
        name="splitjoin-ordering",
        ratio_of="outer order / unordered, tuples/s",
        title="SplitJoin: throughput against ordering precision",
        source="SplitJoin, figure 19",
        claim="Order costs throughput, the more the more precise it is: relaxed punctuation lies between"
        " unordered and strictly ordered output.",
        panels=(
            Panel("2 join cores", "order", "tuples_per_s", "series", ("order=", "tuples/s")),
            Panel("2 join cores", "order", "cpu_us_per_tuple", "series", ("order=", "CPU µs/tuple")),
        ),
        columns=(
            Column("order", "order"),
            *RATE,
            Column("of unordered", "of_unordered", "{:.2f}"),
        ),
        measure=ordering,
        needs_spark=True,
    ),
    Figure(
        name="splitjoin-latency",
        ratio_of="window of 8,192 / 1,024, nested loop, median latency",
        title="SplitJoin: latency against cores and window",
        source="SplitJoin, figure 18",
        claim="Latency grows with the window and falls with the join cores.",
        panels=(
            Panel(
                "epochs of 1,024 tuples a stream",
                "cores",
                "latency_ms_p50",
                "name",
                ("join cores", "median latency (ms)"),
            ),
        ),
        columns=(
            *CORES_AND_WINDOW,
            Column("latency p50 (ms)", "latency_ms_p50", "{:,.0f}"),
            *RATE,
        ),
        measure=latency,
        needs_spark=True,
    ),
)
