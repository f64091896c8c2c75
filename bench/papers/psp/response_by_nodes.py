"""Response time against ring length (PSP, figure 8, by shape).

A longer ring answers sooner, because its slices share the work evenly.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure, spell


def verdict(swept: Swept) -> Verdict:
    sooner = {name: 1 / ratio for name, ratio in swept.grown("response_ms").items()}
    epochs, last = swept.last("response_epochs"), swept.last("response_ms")
    text = (
        f"{swept.values[-1]} nodes instead of one answer sooner by factors of {spell(sooner)}; a result "
        f"then takes {spell(epochs, '{:.0f}')} epoch(s), whose busiest nodes take "
        f"{spell(last, '{:.0f} ms')}: ATR has no hops between epochs, and pays for it in state"
    )
    ratio = sooner["Ring"]
    return Verdict(ratio > 1.5, ratio, text, partly=ratio > 1)


FIGURE = figure(__doc__, "response", "nodes", "ring, one node / longest", verdict)
