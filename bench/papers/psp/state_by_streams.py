"""State against the number of streams (PSP, figure 8, by shape).

The ring's state grows in proportion to the streams, and that of the others by their copies on top.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure, spell


def verdict(swept: Swept) -> Verdict:
    grows, held, copies = swept.grown("mb_held"), swept.last("mb_held"), swept.last("copies")
    most, times = swept.values[-1], swept.values[-1] / swept.values[0]
    ratio = held["ATR"] / held["Ring"]
    text = (
        f"{times:.2f} times the streams hold {spell(grows)} times the bytes; at {most} streams a "
        f"tuple is stored {spell(copies)} times, and ATR holds {ratio:.2f} times the "
        f"ring's bytes; a hop is an epoch, and what partial results under way may "
        f"still ask for stays that long, {most - 2} epochs of half a window here, which ATR is spared"
    )
    is_least = min(held["ATR"], held["CTR"]) > held["Ring"]
    return Verdict(abs(grows["Ring"] / times - 1) < 0.1 and is_least, ratio, text, partly=is_least)


FIGURE = figure(__doc__, "state", "streams", "ATR / ring, bytes stored", verdict)
