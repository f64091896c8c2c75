"""Response time against selectivity (PSP, figure 8, by shape).

Response time grows with selectivity, because more partial results look for partners.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure, spell


def verdict(swept: Swept) -> Verdict:
    grows, candidates = swept.grown("response_ms"), swept.grown("candidates")
    text = (
        f"from selectivity {swept.values[0]:g} to {swept.values[-1]:g} pairs looked at grow by"
        f" {spell(candidates)} and response times by {spell(grows)}"
    )
    return Verdict(min(grows.values()) > 1.2, grows["Ring"], text)


FIGURE = figure(__doc__, "response", "selectivity", "ring, last / first", verdict)
