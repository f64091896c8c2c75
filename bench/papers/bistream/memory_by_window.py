"""Memory per unit with sliding windows (BiStream, figure 6b).

With a sliding window memory stops growing when the window is full; how much it is depends on the window's
length.
"""

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.replay import bytes_held, held
from bench.papers import inputs
from bench.papers.bistream.models import UNITS, square
from thetastream.models import Biclique

EPOCHS = 32
SHARES = (8, 4, 2)
"""The windows are an 8th, a quarter and half of the stream."""


def measure(run: Run) -> Verdict:
    """Measure the bytes of all units after each epoch, for windows of several lengths."""
    whole = inputs.lineitem_band(run.scale)
    peaks = {}
    for share in SHARES:
        query = whole.within(1 / share)
        for setting, model in {"JM": square(UNITS), "JB": Biclique(UNITS // 2)}.items():
            steps = run.replay(query, model, EPOCHS, f"window 1/{share}, {setting}")
            mb = [sum(bytes_held(step)) / UNITS / 1e6 for step in steps]
            # It is full after one window, and a tenth more until the first whole archive period has expired.
            full = EPOCHS // share + 2
            peaks[setting, share] = max(mb[full:])
            for epoch, step in enumerate(steps, 1):
                run.add(
                    setting=setting,
                    window=f"1/{share}",
                    name=f"{setting}, window 1/{share}",
                    epoch=epoch,
                    volume=step.volume,
                    tuples_per_unit=sum(held(steps[:epoch])) / UNITS,
                    mb_per_unit=mb[epoch - 1],
                    growth_once_full=max(mb[full:]) / mb[full - 1],
                )
    run.parameters = {"units": UNITS, "epochs": EPOCHS, "query": whole.name, "volume": whole.volume}
    growth = max(row["growth_once_full"] for row in run.rows)
    spread = peaks["JB", SHARES[-1]] / peaks["JB", SHARES[0]]
    ratio = peaks["JM", SHARES[0]] / peaks["JB", SHARES[0]]
    longer = SHARES[0] / SHARES[-1]
    facts = {
        "once the window is full, memory grows until the end by a factor of at most": growth,
        f"a window {longer:g} times as long holds the bytes times": spread,
        "the square matrix holds the bytes of the biclique times": ratio,
    }
    holds = growth < 1.25 and 0.75 < spread / longer < 1.25
    return Verdict(holds and ratio > 3, ratio, facts, partly=holds)


FIGURE = Figure(
    measure,
    "square matrix / biclique, bytes",
    (Panel("Band, windows as shares of the stream", "volume", "mb_per_unit", "name"),),
    "setting; window|window (share of the stream); tuples_per_unit|tuples per unit, at the end;"
    " mb_per_unit|MB per unit, at the end; growth_once_full",
    is_in_table=lambda row: row["epoch"] == EPOCHS,
)
