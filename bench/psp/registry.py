"""All figures, in the order of the page."""

from bench.figures.figure import Column, Figure, Panel
from bench.psp import sweeps
from bench.psp.doubling import doubling

SOURCE = "PSP, figure 8, by shape"
TRUTH = "a nested loop's in NumPy"
MODEL = Column("model", "model")
OVERLAP = "ATR: windows per segment; CTR: copies asked for"
LAST = "ring, last / first"
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


KINDS = {
    "response": (
        RESPONSE,
        ("response time", "response_ms", "response (ms of busiest nodes)"),
        ("epochs to a result", "response_epochs", "epochs"),
    ),
    "state": (
        STATE,
        ("state", "mb_held", "held by all nodes, peak (MB)"),
        ("the largest node", "mb_largest", "held by the largest node (MB)"),
    ),
}
"""What is measured: columns of the table, and (title, figure, label) of each panel."""
SETTINGS = {
    "nodes": ("nodes", "ring length"),
    "selectivity": ("selectivity", "selectivity"),
    "streams": ("streams", "the number of streams"),
    "pixels": ("pixels", "image size"),
}
"""What is varied: label of the axis, words of the title."""


def varied(kind: str, by: str, claim: str, ratio_of: str) -> Figure:
    """A figure of one kind against one setting, all models side by side."""
    (columns, *panels), (label, words) = KINDS[kind], SETTINGS[by]
    return Figure(
        name=f"{kind}-by-{by}",
        title=f"{'Response time' if kind == 'response' else 'State'} against {words}",
        source=SOURCE,
        claim=claim,
        ratio_of=ratio_of,
        panels=tuple(Panel(title, by, figure, "model", (label, unit)) for title, figure, unit in panels),
        columns=(Column(label, by, "{:,}"), MODEL, *columns),
        measure=getattr(sweeps, f"{kind}_by_{by}"),
        truth=TRUTH,
    )


FIGURES: tuple[Figure, ...] = (
    varied(
        "response",
        "nodes",
        "A longer ring answers sooner, because its slices share the work evenly.",
        "ring, one node / longest",
    ),
    varied(
        "state",
        "nodes",
        "The ring's state is the tuples of the windows at any length, without a copy; that of ATR and CTR is"
        " larger by their copies.",
        "copies, ATR / ring",
    ),
    Figure(
        name="state-by-overlap",
        title="State against overlaps and copies",
        source=SOURCE,
        claim="ATR's state grows with the overlaps of segments, CTR's with its copies; the ring has neither.",
        ratio_of="ATR's copies, most overlap / least",
        panels=tuple(
            Panel(
                title, "overlap", figure, "model", ("ATR: windows per segment; CTR: copies asked for", unit)
            )
            for title, figure, unit in (("copies of a tuple", "copies", "copies stored"), KINDS["state"][1])
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
    varied(
        "response",
        "selectivity",
        "Response time grows with selectivity, because more partial results look for partners.",
        LAST,
    ),
    varied(
        "state",
        "selectivity",
        "Stored state does not depend on selectivity: no intermediate result is stored.",
        "ATR / ring, bytes stored",
    ),
    varied(
        "response",
        "streams",
        "Response time grows with the number of streams, because each is one hop more.",
        LAST,
    ),
    varied(
        "state",
        "streams",
        "The ring's state grows in proportion to the streams, and that of the others by their copies on top.",
        "ATR / ring, bytes stored",
    ),
    varied(
        "response",
        "pixels",
        "Response time grows with the size of the images, as the predicate does.",
        LAST,
    ),
    Figure(
        name="response-when-arrivals-double",
        title="Response time when arrivals double midway",
        source=SOURCE,
        claim="When arrivals double, a ring of fixed length falls behind, and one that grows keeps its"
        " response time.",
        ratio_of="end / before doubling, adaptation off / on",
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
            Column("nodes that take new slices", "nodes_storing", "{:.1f}"),
            Column("results", "results", "{:,}"),
        ),
        measure=doubling,  # type: ignore[arg-type]
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
