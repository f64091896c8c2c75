"""All figures, in the order of the page."""

from bench.figures.figure import Column, Figure, Panel
from bench.psp import sweeps

SOURCE = "PSP, figure 8, by shape"
TRUTH = "a nested loop's in NumPy"
MODEL = Column("model", "model")
RESPONSE = (
    Column("response (epochs)", "response_epochs", "{:.0f}"),
    Column("response (ms of busiest nodes)", "response_ms", "{:.1f}"),
    Column("CPU of all nodes (ms)", "busy_ms", "{:,.0f}"),
    Column("probes of a node's store", "probed", "{:,}"),
    Column("pairs looked at", "candidates", "{:,}"),
    Column("results", "results", "{:,}"),
)
STATE = (
    Column("copies stored", "copies", "{:.2f}"),
    Column("tuples held, peak", "tuples_held", "{:,}"),
    Column("of the largest node", "tuples_largest", "{:,}"),
    Column("MB held, peak", "mb_held", "{:.2f}"),
    Column("of the largest node (MB)", "mb_largest", "{:.2f}"),
    Column("in flight, peak (tuples)", "in_flight", "{:,}"),
    Column("in flight, peak (MB)", "mb_in_flight", "{:.2f}"),
)
RESPONSE_LABEL = "response (ms of busiest nodes)"
STATE_LABEL = "held by all nodes, peak (MB)"


def response(by: str, label: str, title: str, claim: str, measure: object) -> Figure:
    """A figure of response times."""
    return Figure(
        name=f"response-by-{by}",
        title=title,
        source=SOURCE,
        claim=claim,
        ratio_of="ring, one node / longest" if by == "nodes" else "ring, last / first",
        panels=(
            Panel("response time", by, "response_ms", "model", (label, RESPONSE_LABEL)),
            Panel("epochs to a result", by, "response_epochs", "model", (label, "epochs")),
        ),
        columns=(Column(label, by, "{:,}"), MODEL, *RESPONSE),
        measure=measure,  # type: ignore[arg-type]
        truth=TRUTH,
    )


def state(by: str, label: str, title: str, claim: str, measure: object, ratio_of: str) -> Figure:
    """A figure of state."""
    return Figure(
        name=f"state-by-{by}",
        title=title,
        source=SOURCE,
        claim=claim,
        ratio_of=ratio_of,
        panels=(
            Panel("state", by, "mb_held", "model", (label, STATE_LABEL)),
            Panel("the largest node", by, "mb_largest", "model", (label, "held by the largest node (MB)")),
        ),
        columns=(Column(label, by, "{:,}"), MODEL, *STATE),
        measure=measure,  # type: ignore[arg-type]
        truth=TRUTH,
    )


FIGURES: tuple[Figure, ...] = (
    response(
        "nodes",
        "nodes",
        "Response time against ring length",
        "A longer ring answers sooner, because its slices share the work evenly.",
        sweeps.response_by_nodes,
    ),
    state(
        "nodes",
        "nodes",
        "State against ring length",
        "The ring's state is the tuples of the windows at any length, without a copy; that of ATR and CTR is"
        " larger by their copies.",
        sweeps.state_by_nodes,
        "copies, ATR / ring",
    ),
    Figure(
        name="state-by-overlap",
        title="State against overlaps and copies",
        source=SOURCE,
        claim="ATR's state grows with the overlaps of segments, CTR's with its copies; the ring has neither.",
        ratio_of="ATR's copies, most overlap / least",
        panels=(
            Panel(
                "copies of a tuple",
                "overlap",
                "copies",
                "model",
                ("ATR: windows per segment; CTR: copies asked for", "copies stored"),
            ),
            Panel(
                "state",
                "overlap",
                "mb_held",
                "model",
                ("ATR: windows per segment; CTR: copies asked for", STATE_LABEL),
            ),
        ),
        columns=(
            MODEL,
            Column("setting", "setting", "`{}`"),
            Column("windows per segment, or copies", "overlap", "{:g}"),
            Column("formula", "formula", "{:.2f}"),
            *STATE[:5],
        ),
        measure=sweeps.state_by_overlap,  # type: ignore[arg-type]
        truth=TRUTH,
    ),
    response(
        "selectivity",
        "selectivity",
        "Response time against selectivity",
        "Response time grows with selectivity, because more partial results look for partners.",
        sweeps.response_by_selectivity,
    ),
    state(
        "selectivity",
        "selectivity",
        "State against selectivity",
        "Stored state does not depend on selectivity: no intermediate result is stored.",
        sweeps.state_by_selectivity,
        "ATR / ring, bytes stored",
    ),
    response(
        "streams",
        "streams",
        "Response time against the number of streams",
        "Response time grows with the number of streams, because each is one hop more.",
        sweeps.response_by_streams,
    ),
    state(
        "streams",
        "streams",
        "State against the number of streams",
        "The ring's state grows in proportion to the streams, and that of the others by their copies on top.",
        sweeps.state_by_streams,
        "ATR / ring, bytes stored",
    ),
    response(
        "pixels",
        "pixels",
        "Response time against image size",
        "Response time grows with the size of the images, as the predicate does.",
        sweeps.response_by_pixels,
    ),
    Figure(
        name="response-when-arrivals-double",
        title="Response time when arrivals double midway",
        source=SOURCE,
        claim="When arrivals double, a ring of fixed length falls behind, and one that grows keeps its"
        " response time.",
        ratio_of="end / before doubling, ring of one / of the most nodes",
        panels=(
            Panel(
                "a single node is loaded to 0.6 before arrivals double",
                "share",
                "response_s",
                "model",
                ("arrival of the last tuple (share of event time)", "response (s of event time)"),
                log="y",
            ),
        ),
        columns=(
            MODEL,
            Column("arrival (share)", "share", "{:.2f}"),
            Column("response (s of event time)", "response_s", "{:.1f}"),
            Column("results", "results", "{:,}"),
        ),
        measure=sweeps.doubling,  # type: ignore[arg-type]
        is_in_table=lambda row: row["share"] in (0.35, 0.65, 0.95),
        truth=TRUTH,
    ),
    Figure(
        name="response-in-spark",
        title="Response time of whole queries in Spark",
        source=SOURCE,
        claim="The ring answers sooner than aligned and coordinated tuple routing.",
        ratio_of="ring / ATR, ms",
        panels=(
            Panel("response time", "nodes", "response_ms", "model", ("nodes", "response (ms)")),
            Panel("median epoch", "nodes", "epoch_ms", "model", ("nodes", "epoch (ms)")),
        ),
        columns=(
            Column("nodes", "nodes"),
            MODEL,
            Column("setting", "setting", "`{}`"),
            Column("response (epochs)", "response_epochs", "{:.0f}"),
            Column("response (ms)", "response_ms", "{:,.0f}"),
            Column("median epoch (ms)", "epoch_ms", "{:,.0f}"),
        ),
        measure=sweeps.in_spark,  # type: ignore[arg-type]
        needs_spark=True,
        truth=TRUTH,
    ),
)
