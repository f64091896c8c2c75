"""State against selectivity (PSP, figure 8, by shape).

Stored state does not depend on selectivity: no intermediate result is stored.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure


def verdict(swept: Swept) -> Verdict:
    grows, held, flying = swept.grown("mb_held"), swept.last("mb_held"), swept.last("mb_in_flight")
    ratio = held["ATR"] / held["Ring"]
    share = (held["Ring"] + flying["Ring"]) / (held["ATR"] + flying["ATR"])
    facts = {
        "from the lowest to the highest selectivity, bytes stored grow by factors of": grows,
        "MB stored at the highest:": held,
        "MB in flight at the highest:": flying,
        "ATR stores the bytes of the ring times": ratio,
        "with what is in flight, the ring holds the bytes of ATR times": share,
    }
    return Verdict(max(abs(grow - 1) for grow in grows.values()) < 0.02, ratio, facts)


FIGURE = figure("state", "selectivity", "ATR / ring, bytes stored", verdict)
