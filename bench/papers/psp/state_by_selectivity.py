"""State against selectivity (PSP, figure 8, by shape).

Stored state does not depend on selectivity: no intermediate result is stored.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure, spell


def verdict(swept: Swept) -> Verdict:
    grows, held, flying = swept.grown("mb_held"), swept.last("mb_held"), swept.last("mb_in_flight")
    ratio = held["ATR"] / held["Ring"]
    share = (held["Ring"] + flying["Ring"]) / (held["ATR"] + flying["ATR"])
    text = (
        f"stored bytes change by {spell(grows)}; at selectivity {swept.values[-1]:g} partial "
        f"results in flight are {spell(flying, '{:.1f} MB')} at the most, beside "
        f"{spell(held, '{:.1f} MB')} stored"
        f"; ATR stores {ratio:.2f} times the ring's bytes, and with what is in flight the ring holds "
        f"{share:.2f} of ATR's"
    )
    return Verdict(max(abs(grow - 1) for grow in grows.values()) < 0.02, ratio, text)


FIGURE = figure(__doc__, "state", "selectivity", "ATR / ring, bytes stored", verdict)
