"""Response time against image size (PSP, figure 8, by shape).

Response time grows with the size of the images, as the predicate does.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure, spell


def verdict(swept: Swept) -> Verdict:
    grows, held = swept.grown("response_ms"), swept.grown("mb_held")
    text = (
        f"{swept.values[-1] / swept.values[0]:g} times the pixels take {spell(grows)} times as long and hold"
        f" {spell(held)} times the bytes"
    )
    return Verdict(min(grows.values()) > 1, grows["Ring"], text)


FIGURE = figure(__doc__, "response", "pixels", "ring, last / first", verdict)
