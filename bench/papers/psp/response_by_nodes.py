"""Response time against ring length (PSP, figure 8, by shape).

A longer ring answers sooner, because its slices share the work evenly.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure


def verdict(swept: Swept) -> Verdict:
    sooner = {name: 1 / ratio for name, ratio in swept.grown("response_ms").items()}
    facts = {
        "with the most nodes instead of one, results come sooner by factors of": sooner,
        "epochs to a result:": swept.last("response_epochs"),
        "ms to a result:": swept.last("response_ms"),
    }
    remark = "ATR has no hops between epochs, and pays for it in state"
    return Verdict(sooner["Ring"] > 1.5, sooner["Ring"], facts, remark, partly=sooner["Ring"] > 1)


FIGURE = figure("response", "nodes", "ring, one node / longest", verdict)
