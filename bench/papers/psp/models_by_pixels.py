"""Ring, ATR and CTR against the size of images (PSP, section 8.2).

The cost of the predicate is proportional to the pixels, and response time grows with it.
"""

from bench.core.figure import Run, Verdict
from bench.papers.psp.sweeps import compare_models, figure, grow

PIXELS = (5_000, 10_000, 20_000)


def verdict(run: Run) -> Verdict:
    slower = grow(run, "response_ms", "model")
    facts = {
        "the number of pixels grows by a factor of": PIXELS[-1] / PIXELS[0],
        "response times grow by factors of": slower,
        "bytes held grow by factors of": grow(run, "mb_held", "model"),
    }
    return Verdict(min(slower.values()) > 1, slower["Ring"], facts)


FIGURE = figure(
    "pixels", "model", compare_models("pixels", PIXELS), "ring, response at 20,000 / 5,000", verdict
)
