"""Response time and state of the ring against its length (PSP, figures 8a and 8b).

A longer ring answers sooner, up to a length that depends on the selectivity: at 0.5, more than 14 nodes make
it slower again. The state does not depend on the length.
"""

from collections.abc import Iterator
from dataclasses import replace

from bench.core.figure import Run, Verdict
from bench.papers.psp.images import Workload
from bench.papers.psp.replay import SLICE
from bench.papers.psp.sweeps import NODES, Point, figure, grow
from thetastream.models import Ring

SELECTIVITIES = (0.05, 0.1, 0.5)


def list_points(run: Run, work: Workload) -> Iterator[Point]:
    for selectivity in run.some(SELECTIVITIES):
        for nodes in run.some(NODES):
            varied = replace(work, selectivity=selectivity)
            yield Point(varied, Ring(nodes, SLICE), {"nodes": nodes, "selectivity": selectivity})


def verdict(run: Run) -> Verdict:
    fastest = {}
    for selectivity in run.some(SELECTIVITIES):
        times = run.rows.by("nodes", "response_ms", selectivity=selectivity)
        fastest[selectivity] = min(times, key=times.__getitem__)
    sooner = {name: 1 / ratio for name, ratio in grow(run, "response_ms", "selectivity").items()}
    state = grow(run, "tuples_held", "selectivity")
    most, dense = NODES[-1], SELECTIVITIES[-1]
    facts = {
        f"with {most} nodes instead of {NODES[0]}, results come sooner by factors of": sooner,
        "by selectivity, the number of nodes that answers soonest:": fastest,
        "tuples held grow by factors of": state,
    }
    remark = (
        "a probe goes to all nodes in one exchange, so a longer ring has no longer way; what grows with the"
        " ring is the work that every node does for each tuple"
    )
    is_flat = max(abs(ratio - 1) for ratio in state.values()) < 0.05
    turns = fastest[dense] < most
    return Verdict(
        turns and is_flat and min(sooner.values()) > 1,
        sooner[dense],
        facts,
        remark,
        partly=is_flat and sooner[dense] > 1,
    )


FIGURE = figure("nodes", "selectivity", list_points, "ring at selectivity 0.5, 4 nodes / 19, ms", verdict)
