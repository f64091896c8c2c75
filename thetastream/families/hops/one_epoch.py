"""Decides whether a ring makes all hops of a tuple in one epoch, and which stream its nodes then store once.

With the mailbox, every tuple is stored once, and a hop costs an epoch. In one epoch, one stream is stored
once, and all N nodes store the tuples of the others. Let held(j) be the stored tuples of stream j:

    copies(i) = (held(i) + N * sum of held(j), j not i) / sum of all held(j)

Until a tuple of another stream has been joined with stream i, all nodes make its comparisons. Afterwards each
node makes a share of them. So the best stream i is one that tuples of the others visit first. Ties of the
condition say which these are: on a path a - b - c, it is b. Of several good ones, it is the stream with the
most stored tuples, because copies of the others are fewest.
"""

from collections.abc import Sequence
from typing import NamedTuple

from thetastream.core.errors import QueryError
from thetastream.families.hops.cost import FULLEST, MultiwayLoad
from thetastream.models.ring import EPOCH, MAILBOX, Ring

MOST_COPIES = 2.5
"""The largest number of copies of a tuple, on average, that the planner chooses to save epochs."""
MOST_BUSY = 1.25
"""How much busier nodes may be than with a mailbox, or with the best stream stored once."""


_WAITS = "in_flight lets tuples wait for a later epoch"


class SizedLoad(NamedTuple):
    """The estimated load of a ring, and its number of nodes."""

    load: MultiwayLoad
    nodes: int


def find_obstacle(ring: Ring, max_units: int | None, is_counted: bool) -> str | None:
    """Return why the hops of a ring cannot end in one epoch, as a clause; None if they can.

    If nodes may change, an older generation goes on until its tuples have left their windows. It notices this
    by event time, and its tuples stay where they are.
    """
    if ring.in_flight is not None:
        return _WAITS
    if max_units is not None and ring.moves_tuples:
        return "tuples move when nodes change (moves_tuples and max_units)"
    if max_units is not None and is_counted:
        return "the nodes may change (max_units), and windows count tuples"
    return None


def find_hops_problems(ring: Ring, max_units: int | None, is_counted: bool) -> list[QueryError]:
    """Return an error if the user asks for one epoch and the hops of the ring cannot end in one."""
    obstacle = find_obstacle(ring, max_units, is_counted)
    if ring.hops != EPOCH or obstacle is None:
        return []
    return [QueryError("BAD_HOPS", f'hops="epoch" is not possible, because {obstacle}; leave hops out')]


def choose_stored_once(estimates: Sequence[SizedLoad]) -> SizedLoad:
    """Choose the stream whose tuples are stored once.

    There is an estimate for each stream. Of the streams with which nodes are not much busier than with the
    best one, it is the one with the fewest copies.
    """
    least = min(load.busy(nodes) for load, nodes in estimates)
    good = [one for one in estimates if one.load.busy(one.nodes) <= MOST_BUSY * least]
    return min(good, key=lambda one: (one.load.copies(one.nodes), one.load.busy(one.nodes)))


def find_reason_against(
    ring: Ring, max_units: int | None, mailbox: MultiwayLoad, one_epoch: SizedLoad
) -> str | None:
    """Return why a ring makes one hop in an epoch, as words for ``explain``; None if it makes all of them.

    Parameters
    ----------
    ring : Ring
    max_units : int, optional
        The largest number of units, if nodes may change while the query runs.
    mailbox : MultiwayLoad
        The load with a mailbox.
    one_epoch : SizedLoad
        The load if all hops end in one epoch.

    Examples
    --------
    >>> mailbox = MultiwayLoad(3, (60, 60, 60), (), 0.1, 0.8, 0)
    >>> one_epoch = MultiwayLoad(3, (60, 60, 60), (), 0.1, 0.8, 0, stored_once=0)
    >>> [find_reason_against(Ring(n), None, mailbox, SizedLoad(one_epoch, n)) for n in (2, 8)]
    [None, 'in one epoch, nodes would store 5.7 copies of a tuple']
    """
    if ring.hops == MAILBOX:
        return 'hops="mailbox" is set'
    if ring.hops == EPOCH:
        return None
    if ring.in_flight is not None:
        return _WAITS
    if max_units is not None:
        # A ring that grows would store more copies than the one that was planned.
        return 'the nodes may change while the query runs (max_units); hops="epoch" makes one epoch'
    load, nodes = one_epoch
    if load.copies(nodes) > MOST_COPIES:
        return f"in one epoch, nodes would store {load.copies(nodes):.1f} copies of a tuple"
    if load.busy(nodes) > max(FULLEST, MOST_BUSY * mailbox.busy(nodes)):
        return f"in one epoch, nodes would be {load.busy(nodes) / mailbox.busy(nodes):.1f} times as busy"
    return None
