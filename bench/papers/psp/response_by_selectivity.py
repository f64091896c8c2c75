"""Response time against selectivity (PSP, figure 8, by shape).

Response time grows with selectivity, because more partial results look for partners.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure


def verdict(swept: Swept) -> Verdict:
    grows = swept.grown("response_ms")
    facts = {
        "selectivities:": swept.values,
        "from the first to the last, pairs looked at grow by factors of": swept.grown("candidates"),
        "response times grow by factors of": grows,
    }
    return Verdict(min(grows.values()) > 1.2, grows["Ring"], facts)


FIGURE = figure("response", "selectivity", "ring, last / first", verdict)
