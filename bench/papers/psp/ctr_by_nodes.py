"""Response time and state of coordinated tuple routing against nodes and copies (PSP, figures 8e and 8f).

More nodes make answers come sooner, and more copies make them come later, because fewer nodes then cover a
window. The state grows with the copies and hardly with the nodes.
"""

from collections.abc import Iterator
from datetime import timedelta

from bench.core.figure import Run, Verdict
from bench.papers.psp.images import Workload
from bench.papers.psp.sweeps import NODES, Point, figure, grow
from thetastream.models import CTR

COPIES = (2, 4, 6, 9)


def list_points(run: Run, work: Workload) -> Iterator[Point]:
    """List the numbers of copies; there are at least twice as many nodes as copies."""
    segment = timedelta(microseconds=work.window_us // 6)
    for copies in run.some(COPIES):
        for nodes in NODES:
            if nodes >= 2 * copies:
                yield Point(work, CTR(nodes, copies, segment), {"nodes": nodes, "told": copies})


def verdict(run: Run) -> Verdict:
    most, few, many = NODES[-1], *(run.some(COPIES)[at] for at in (0, -1))
    sooner = 1 / grow(run, "response_ms", "told")[few]
    state = grow(run, "tuples_held", "told")
    responses = run.rows.by("told", "response_ms", nodes=most)
    later = responses[many] / responses[few]
    facts = {
        f"with {few} copies, {most} nodes instead of {NODES[0]} answer sooner by a factor of": sooner,
        f"with {most} nodes, {many} copies instead of {few} answer later by a factor of": later,
        "by copies, tuples held grow with the nodes by factors of": state,
        f"tuples held with {most} nodes:": run.rows.by("told", "tuples_held", nodes=most),
    }
    is_flat = max(abs(ratio - 1) for ratio in state.values()) < 0.1
    return Verdict(is_flat and sooner > 1 and later > 1, later, facts, partly=is_flat)


FIGURE = figure("nodes", "told", list_points, "CTR with 19 nodes, 9 copies / 2, ms", verdict)
