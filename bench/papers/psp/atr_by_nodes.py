"""Response time and state of aligned tuple routing against nodes and segments (PSP, figures 8c and 8d).

One node does all the work of a tuple, so that more nodes do not make answers come sooner. The state grows
with the nodes, because segments are copied.
"""

from collections.abc import Iterator
from datetime import timedelta

from bench.core.figure import Run, Verdict
from bench.papers.psp.images import Workload
from bench.papers.psp.sweeps import NODES, Point, figure, grow
from thetastream.models import ATR

SEGMENTS = (1, 3, 5)
"""The lengths of segments in windows."""


def list_points(run: Run, work: Workload) -> Iterator[Point]:
    for segment in run.some(SEGMENTS):
        for nodes in run.some(NODES):
            model = ATR(nodes, timedelta(microseconds=segment * work.window_us))
            yield Point(work, model, {"nodes": nodes, "segment": segment})


def verdict(run: Run) -> Verdict:
    few, many = NODES[0], NODES[-1]
    sooner = {name: 1 / ratio for name, ratio in grow(run, "response_ms", "segment").items()}
    facts = {
        f"by windows in a segment, {many} nodes instead of {few} answer sooner by factors of": sooner,
        "tuples held grow by factors of": grow(run, "tuples_held", "segment"),
        "copies stored of a tuple:": run.rows.by("segment", "copies", nodes=many),
    }
    remark = (
        "a segment is copied to its neighbours, which its windows touch, however many nodes there are, so"
        " that our state follows the segments and not the nodes"
    )
    stays = max(sooner.values()) < 1.3
    rises = min(grow(run, "tuples_held", "segment").values()) > 1.3
    return Verdict(stays and rises, max(sooner.values()), facts, remark, partly=stays)


FIGURE = figure("nodes", "segment", list_points, "ATR, 4 nodes / 19, ms, at the most", verdict)
