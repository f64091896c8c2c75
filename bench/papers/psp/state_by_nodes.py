"""State against ring length (PSP, figure 8, by shape).

The ring's state is the tuples of the windows at any length, without a copy; that of ATR and CTR is larger
by their copies.
"""

from bench.core.figure import Verdict
from bench.papers.psp.sweeps import Swept, figure


def verdict(swept: Swept) -> Verdict:
    copies, grows = swept.last("copies"), swept.grown("mb_held")
    facts = {
        "copies stored of a tuple with the most nodes:": copies,
        "from one node, bytes held at the peak grow by factors of": grows,
    }
    is_single = {row["copies"] for row in swept.run.rows.where(model="Ring")} == {1.0}
    holds = is_single and grows["Ring"] < 1.2 and min(grows["ATR"], grows["CTR"]) > 1.5
    remark = f"the ring stores each tuple {'once' if is_single else 'more than once'} at any length"
    return Verdict(holds, copies["ATR"] / copies["Ring"], facts, remark)


FIGURE = figure("state", "nodes", "copies, ATR / ring", verdict)
