"""State against the number of streams (PSP, figure 8, by shape).

The ring's state grows in proportion to the streams, and that of the others by their copies on top.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure


def verdict(swept: Swept) -> Verdict:
    grows, held = swept.grown("mb_held"), swept.last("mb_held")
    most, times = swept.values[-1], swept.values[-1] / swept.values[0]
    ratio = held["ATR"] / held["Ring"]
    facts = {
        "the number of streams grows by a factor of": times,
        "bytes held grow by factors of": grows,
        "copies stored of a tuple with the most streams:": swept.last("copies"),
        "ATR holds the bytes of the ring times": ratio,
    }
    remark = (
        "a hop is an epoch, and what partial results under way may still ask for stays that long,"
        f" {most - 2} epochs of half a window here, which ATR is spared"
    )
    is_least = min(held["ATR"], held["CTR"]) > held["Ring"]
    return Verdict(abs(grows["Ring"] / times - 1) < 0.1 and is_least, ratio, facts, remark, partly=is_least)


FIGURE = figure("state", "streams", "ATR / ring, bytes stored", verdict)
