"""State against ring length (PSP, figure 8, by shape).

The ring's state is the tuples of the windows at any length, without a copy; that of ATR and CTR is larger
by their copies.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure, spell


def verdict(swept: Swept) -> Verdict:
    copies, grows = swept.last("copies"), swept.grown("mb_held")
    text = (
        f"with {swept.values[-1]} nodes a tuple is stored {spell(copies)} times, and bytes held at the "
        f"peak are those of one node times {spell(grows)}; the ring stores each tuple once at any length"
    )
    is_single = {row["copies"] for row in swept.run.rows.where(model="Ring")} == {1.0}
    holds = is_single and grows["Ring"] < 1.2 and min(grows["ATR"], grows["CTR"]) > 1.5
    return Verdict(holds, copies["ATR"] / copies["Ring"], text)


FIGURE = figure(__doc__, "state", "nodes", "copies, ATR / ring", verdict)
