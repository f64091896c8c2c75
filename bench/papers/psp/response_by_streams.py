"""Response time against the number of streams (PSP, figure 8, by shape).

Response time grows with the number of streams, because each is one hop more.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure


def verdict(swept: Swept) -> Verdict:
    grows = swept.grown("response_ms")
    facts = {
        "numbers of streams:": swept.values,
        "from the first to the last, response times grow by factors of": grows,
        "epochs to a result with the most streams:": swept.last("response_epochs"),
    }
    return Verdict(min(grows.values()) > 1, grows["Ring"], facts)


FIGURE = figure("response", "streams", "ring, last / first", verdict)
