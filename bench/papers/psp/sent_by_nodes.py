"""What nodes send, store and compare under the ring, ATR and CTR (PSP, section 7).

Aligned tuple routing sends the least, coordinated tuple routing more, and the ring the most, because all
tuples and partial results visit all of its nodes. For this, the ring stores no copies, and the others do.

All numbers are counts, so that they repeat exactly, also while other work runs on the machine. A copy that is
sent is a tuple at a node that receives it; a partial result at a node that receives it is counted in the same
way. The busiest node is the one that compares the most pairs in an epoch, and its pairs are summed over all
epochs. So they stand for the time that the join takes if each node has a core of its own.
"""

from collections.abc import Iterator
from datetime import timedelta

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.replay import total
from bench.papers.psp.images import Workload
from bench.papers.psp.replay import SLICE, replay
from bench.papers.psp.sweeps import TRUTH, given
from thetastream.models import ATR, CTR, Multiway, Ring

NODES = (4, 9, 19)
RING, ONE_EPOCH, CTR_2 = "Ring, mailbox", "Ring, one epoch", "CTR, 2 copies"
ATR_LONG = "ATR, segments of 5 windows"


def list_models(work: Workload, nodes: int) -> Iterator[tuple[str, Multiway]]:
    """List the models with their names. The middle stream is the ring's stream that is stored once, and the
    master of ATR."""
    yield RING, Ring(nodes, SLICE)
    yield ONE_EPOCH, Ring(nodes, SLICE).store_once(1)
    for name, n_windows in (("ATR, segments of 1 window", 1), (ATR_LONG, 5)):
        yield name, ATR(nodes, timedelta(microseconds=n_windows * work.window_us), 1)
    segment = timedelta(microseconds=work.window_us // 6)
    yield CTR_2, CTR(nodes, 2, segment)
    yield "CTR, 4 copies", CTR(nodes, 4, segment)


def measure(run: Run) -> Verdict:
    # Predicates are cheap and windows short, because no time is measured, and ATR needs many segments.
    work = Workload(tuples=600, per_window=12, pixels=400, seed=run.seed).scaled(run.scale)
    for nodes in run.some(NODES):
        for name, model in list_models(work, nodes):
            run.announce(f"{name}, {nodes} nodes")
            found = replay(work, model)
            run.check(f"{name}, {nodes} nodes", found.expected, len(found.found))
            n_tuples = work.streams * work.tuples
            run.add(
                nodes=nodes,
                model=name,
                setting=repr(model),
                copies_sent=sum(epoch.copies_sent for epoch in found.epochs) / n_tuples,
                partials_sent=sum(epoch.partials_sent for epoch in found.epochs) / n_tuples,
                mb_sent=sum(epoch.sent_bytes for epoch in found.epochs) / 1e6,
                copies=total(found.epochs, "stored") / n_tuples,
                tuples_held=int(found.held().sum(axis=1).max()),
                candidates=total(found.epochs, "candidates"),
                most_candidates=sum(epoch.most_comparisons for epoch in found.epochs),
                response_epochs=found.response_epochs,
                results=len(found.found),
            )
    run.parameters = given(work)
    most = run.rows.where(nodes=run.some(NODES)[-1])
    sent, copies = most.by("model", "mb_sent"), most.by("model", "copies")
    n_nodes = run.some(NODES)[-1]
    ratio = sent[RING] / sent[ATR_LONG]
    facts = {
        f"with {n_nodes} nodes, MB sent:": sent,
        "the ring sends this many times the bytes of ATR:": ratio,
        "copies sent of a tuple:": most.by("model", "copies_sent"),
        "copies stored:": copies,
        "pairs of the busiest node:": most.by("model", "most_candidates"),
    }
    remark = (
        "a ring in one epoch sends no partial results, but as many tuples; a long segment of ATR is the work"
        " of one node at a time"
    )
    holds = sent[ATR_LONG] < sent[CTR_2] < sent[RING] and copies[RING] < min(copies[ATR_LONG], copies[CTR_2])
    return Verdict(holds, ratio, facts, remark)


FIGURE = Figure(
    measure,
    "ring / ATR with segments of 5 windows, 19 nodes, MB sent",
    (
        Panel("sent", "nodes", "mb_sent", "model"),
        Panel("state", "nodes", "tuples_held", "model"),
        Panel("pairs of the busiest node", "nodes", "most_candidates", "model"),
    ),
    "nodes; model; copies_sent|copies sent of a tuple; partials_sent|partial results received, for a tuple;"
    " mb_sent; copies; tuples_held; candidates; most_candidates|of the busiest node; response_epochs;"
    " results",
    truth=TRUTH,
)
