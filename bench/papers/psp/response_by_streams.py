"""Response time against the number of streams (PSP, figure 8, by shape).

Response time grows with the number of streams, because each is one hop more.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure, spell


def verdict(swept: Swept) -> Verdict:
    grows, epochs = swept.grown("response_ms"), swept.last("response_epochs")
    few, most = swept.values[0], swept.values[-1]
    text = (
        f"from {few} to {most} streams response times grow by {spell(grows)}; at {most} "
        f"streams a result takes {spell(epochs, '{:.0f}')} epoch(s)"
    )
    return Verdict(min(grows.values()) > 1, grows["Ring"], text)


FIGURE = figure(__doc__, "response", "streams", "ring, last / first", verdict)
