"""A ring that gets more nodes while it runs, in one process.

The control source, its plans, the notices to nodes and the nodes are those of a controlled query. A change
takes effect in the second epoch after the request.
"""

from collections.abc import Sequence

from bench.core.internals import (
    ControlledRun,
    Counters,
    Inbox,
    PartialResults,
    Request,
    Rules,
    apply_requests,
    build_multiway_spec,
    is_decision,
    is_moved,
)
from bench.core.replay import Batches
from bench.papers.psp.images import Streams
from thetastream.models import Ring

RULES = Rules(max_units=40, only_sizes=True)


class GrowingRing(ControlledRun):
    """A ring of nodes.

    Parameters
    ----------
    streams : Streams
        The streams of images that it joins.
    model : Ring
        The ring with which the join begins. Its ``moves_tuples`` says whether stored tuples move.
    """

    def __init__(self, streams: Streams, model: Ring) -> None:
        super().__init__(build_multiway_spec(streams.graph, streams.orders, model), model, RULES)

    def ask(self, nodes: int) -> None:
        """Ask for this number of nodes. The same request a second time changes nothing."""
        self.put(Request(sizes={"nodes": nodes}), str(nodes))

    def deliver(self, batches: Batches, watermark_us: int | None = None) -> list[Inbox]:
        """Read the requests, and begin an epoch. Slots without a node in this epoch count nothing."""
        self.read_offset(apply_requests(self.offset, self.requests, self.drained, RULES, self.arrived))
        self.counters = [Counters() for _ in self.states]
        return super().deliver(batches, watermark_us)

    @property
    def partial_results(self) -> Sequence[PartialResults]:
        """The partial results in flight, without tuples that move and decisions for new nodes."""
        others = [one for one in self.in_flight if not is_moved(one) and not is_decision(one)]
        return list(map(PartialResults.from_message, others))
