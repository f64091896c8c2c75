"""Response time against image size (PSP, figure 8, by shape).

Response time grows with the size of the images, as the predicate does.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure


def verdict(swept: Swept) -> Verdict:
    grows, held = swept.grown("response_ms"), swept.grown("mb_held")
    facts = {
        "the number of pixels grows by a factor of": swept.values[-1] / swept.values[0],
        "response times grow by factors of": grows,
        "bytes held grow by factors of": held,
    }
    return Verdict(min(grows.values()) > 1, grows["Ring"], facts)


FIGURE = figure("response", "pixels", "ring, last / first", verdict)
