"""State against overlaps and copies (PSP, figure 8, by shape).

ATR's state grows with the overlaps of segments, CTR's with its copies; the ring has neither.
"""

from datetime import timedelta

import numpy as np

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers.psp.images import Workload
from bench.papers.psp.replay import SLICE
from bench.papers.psp.sweeps import NODES, STATE, TRUTH, add, given
from thetastream.models import ATR, CTR, Multiway, Ring


def measure(run: Run) -> Verdict:
    work = Workload(seed=run.seed).scaled(run.scale)
    settings: list[tuple[str, float, Multiway]] = [("Ring", 0.0, Ring(NODES, SLICE))]
    for overlap in (0.25, 0.5, 1, 2):
        segment = timedelta(microseconds=round(work.window_us / overlap))
        settings.append(("ATR", overlap, ATR(NODES, segment)))
    segment = timedelta(microseconds=work.window_us // 6)
    settings += [("CTR", float(copies), CTR(NODES, copies, segment)) for copies in (1, 2, 3, 4)]
    for label, value, model in settings:
        # A tuple of the master is on one node, and a slave's on one for each segment that its window touches.
        wanted = (1 + (work.streams - 1) * min(NODES, 1 + 2 * value)) / work.streams
        row = add(run, label, model, work, overlap=value)
        row["formula"] = {"Ring": 1.0, "ATR": wanted, "CTR": value}[label]
    run.parameters = given(work)
    ring, atr, ctr = ([row["copies"] for row in run.rows.where(model=n)] for n in ("Ring", "ATR", "CTR"))
    ratio = atr[-1] / atr[0]
    facts = {
        f"on {NODES} nodes, with segments of four windows to half a window, ATR stores copies:": atr,
        "the last is the first times": ratio,
        "CTR stores as many copies as it is told:": ctr,
        "the ring stores": ring,
    }
    rises = all(np.all(np.diff(copies) > 0) for copies in (atr, ctr))
    return Verdict(rises and ring == [1.0], ratio, facts)


FIGURE = Figure(
    measure,
    "ATR's copies, most overlap / least",
    (Panel("copies of a tuple", "overlap", "copies", "model"), Panel("state", "overlap", "mb_held", "model")),
    f"model; setting; overlap; formula; {STATE}",
    truth=TRUTH,
)
