"""The identity of a query is its meaning, part by part. It decides what may continue from a checkpoint.

    identity: name of a part -> (meaning, words, rule)

A checkpoint keeps the identity of its query. A query continues from it if every part has an equal meaning, or
one that the rule of the part allows. ``words`` say in an error what the user wrote.

Spark's process for the offsets of a source compares identities too. It does not load this package, so this
module imports only the standard library, and errors only where they are raised.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple

EQUAL = "equal"
"""Rule: the meaning must be equal."""
COLUMNS = "columns"
"""Rule: the meaning is a JSON list of texts, which must be equal. An error names only those that differ."""
NARROWER = "narrower"
"""Rule: the meaning is a JSON list of intervals, each of which may become narrower. An end of an interval is
null if it is open."""
CHOSEN = "chosen"
"""Rule: the meaning is ``<partitions>:<text>``, chosen by the planner for a number of shuffle partitions.
Choices for two numbers are not compared. Without a number, the choice is the one that runs."""


CONDITION = "the condition"
"""The name of the part that a fork may change. Its meaning is a JSON object."""
UNITS = "the units"
"""The name of the part that tells the second units of a query from its first units."""
KIND = "the kind of join"
"""The name of the part that says how a join answers; an inner join has no such part."""
TASKS = "the set of tasks"
"""The name of the part that lists the tasks of ``th.join_many``. Each of them is an inner join."""


class Part(NamedTuple):
    """One part of a query: what it means, what the user wrote, and what may change."""

    meaning: str
    words: str
    rule: str = EQUAL


Identity = Mapping[str, Part]
"""The parts of a query, by names that a user knows, as in "the condition"."""


def digest(identity: Identity) -> str:
    """Compute a short name of a query from the meanings of its parts."""
    meanings = {name: part.meaning for name, part in identity.items()}
    return hashlib.sha256(json.dumps(meanings, sort_keys=True).encode()).hexdigest()[:12]


def encode_identity(identity: Identity) -> dict[str, list[str]]:
    """Convert an identity to plain values for JSON."""
    return {name: list(part) for name, part in identity.items()}


def decode_identity(values: Mapping[str, list[str]]) -> dict[str, Part]:
    """Read what ``encode_identity`` returned. It raises TypeError or ValueError for anything else."""
    return {str(name): Part(*map(str, part)) for name, part in values.items()}


def find_changes(before: Identity, now: Identity) -> list[str]:
    """Say what a checkpoint does not allow to change; the list is empty if the query may continue.

    Parameters
    ----------
    before : Identity
        The identity that the checkpoint keeps.
    now : Identity
        The identity of the query that starts.

    Examples
    --------
    >>> before = {"the condition": Part("a.x<b.x", "a.x<b.x"), "the window": Part("[[-9,9]]", "", NARROWER)}
    >>> now = {"the condition": Part("a.x<=b.x", "a.x<=b.x"), "the window": Part("[[-5,5]]", "", NARROWER)}
    >>> find_changes(before, now)
    ['the condition was a.x<b.x, it is a.x<=b.x']
    """
    names = [*before, *(name for name in now if name not in before)]
    return [
        change
        for name in names
        if (change := _find_change(name, before.get(name), now.get(name))) is not None
    ]


def _find_change(name: str, before: Part | None, now: Part | None) -> str | None:
    if before is None or now is None:
        return f"{name} was {before.words if before else 'not set'}, it is {now.words if now else 'not set'}"
    if before.meaning == now.meaning:
        return None
    if before.rule == now.rule == COLUMNS:
        return _compare_columns(name, json.loads(before.meaning), json.loads(now.meaning))
    if before.rule == now.rule == NARROWER:
        if _is_inside(json.loads(now.meaning), json.loads(before.meaning)):
            return None
        return f"{name} was {before.words}, it is {now.words}, which is not inside the old one"
    if CHOSEN in (before.rule, now.rule):
        return _compare_choices(name, before, now)
    if before.words == now.words:
        causes = (
            "another version of Thetastream, other settings of the session, or another function of this name"
        )
        return f"{name} is {now.words} as before, but it is planned otherwise, because of {causes}"
    return f"{name} was {before.words}, it is {now.words}"


def _compare_columns(name: str, before: list[str], now: list[str]) -> str:
    gone = [column for column in before if column not in now]
    new = [column for column in now if column not in before]
    said = [f"{what} {', '.join(columns)}" for what, columns in (("had", gone), ("has", new)) if columns]
    return f"{name} {' and now '.join(said)}" if said else f"{name} has the same columns in another order"


def _is_inside(inner: list[list[int | None]], outer: list[list[int | None]]) -> bool:
    if len(inner) != len(outer):
        return False
    for (low, high), (old_low, old_high) in zip(inner, outer, strict=True):
        if old_low is None and old_high is None:
            # Nothing was ever evicted, and nothing was checked: the event times may even be NULL.
            return low is None and high is None
        if old_low is not None and (low is None or low < old_low):
            return False
        if old_high is not None and (high is None or high > old_high):
            return False
    return True


def _compare_choices(name: str, before: Part, now: Part) -> str | None:
    (old_partitions, old), (partitions, new) = (
        part.meaning.split(":", 1) if part.rule == CHOSEN else ("", part.meaning) for part in (before, now)
    )
    is_comparable = old_partitions == partitions or "" in (old_partitions, partitions)
    if old == new or not is_comparable:
        return None
    how = f" (chosen for {old_partitions} shuffle partitions)" if old_partitions else ""
    return f"{name} was {old}{how}, it is {new}; give model=th.{old} to continue"


def find_fork_obstacles(before: Identity, now: Identity, routes_by_content: bool) -> list[str]:
    """Say why the stored tuples of a query cannot serve one of another condition; empty if they can.

    Units store tuples with the columns that are computed for the condition, after the filters over one
    stream. Which of the stored tuples have a partner belongs to the old condition too.

    Parameters
    ----------
    before, now : Identity
        The query that has stored the tuples, and the one that is to join them.
    routes_by_content : bool
        Whether the values that the condition compares say which unit stores a tuple.

    Examples
    --------
    >>> def query(filters):
    ...     meaning = {"filters": filters, "computed": [[], []], "equalities": [], "dimensions": []}
    ...     return {"the condition": Part(json.dumps(meaning), "")}
    >>> find_fork_obstacles(query([[], []]), query([["a.x>0"], []]), False)
    ['the filters of stream 1 were none, they are a.x>0: rows that fail a filter are not stored']
    """
    others = [{name: one[name] for name in one if name != CONDITION} for one in (before, now)]
    found = find_changes(*others)
    if CONDITION not in before or CONDITION not in now:
        return [*found, "only a join of two streams has one condition that can change"]
    for name in (KIND, "the order of results"):
        if name in now:
            found.append(f"{name} is {now[name].words}, and what units know of stored tuples belongs to it")
    old, new = (json.loads(one[CONDITION].meaning) for one in (before, now))
    whys = {
        "filters": ("the filters", "rows that fail a filter are not stored"),
        "computed": ("the computed values", "stored tuples have the old ones, and no others"),
    }
    for key, (what, why) in whys.items():
        for number, (was, is_) in enumerate(zip(old[key], new[key], strict=True), 1):
            if was != is_:
                texts = (", ".join(map(_write_computed, each)) or "none" for each in (was, is_))
                found.append("{} of stream {} were {}, they are {}: {}".format(what, number, *texts, why))
    if routes_by_content and any(old[key] != new[key] for key in ("equalities", "dimensions")):
        what = "the model routes by the values that the condition compares, and stored tuples lie by the old"
        found.append(f"{what} ones; the old query must have random routing")
    return found


def _write_computed(value: str | list[str]) -> str:
    """Write a filter, or a computed value, which is a pair of a column and its text."""
    return value if isinstance(value, str) else value[-1]


def fix_choices(identity: Identity) -> Identity:
    """Return the identity of a running query, whose choices are compared with any others."""
    return {
        name: Part(f":{part.words}", part.words, CHOSEN) if part.rule == CHOSEN else part
        for name, part in identity.items()
    }


def adopt_choices(before: Identity, now: Identity) -> Identity:
    """Return the identity to keep from now on: that of the new start, with the choices made before."""
    return {
        name: before[name] if part.rule == CHOSEN and name in before and before[name].rule == CHOSEN else part
        for name, part in now.items()
    }


def refuse_changes(before: Identity, now: Identity) -> None:
    """Refuse a query that may not continue from a checkpoint.

    Raises
    ------
    StateError
        STATE_OF_ANOTHER_QUERY, with everything that has changed.
    """
    changes = find_changes(before, now)
    if changes:
        from thetastream.core.errors import StateError

        raise StateError(
            "STATE_OF_ANOTHER_QUERY",
            f"the checkpoint belongs to another query: {'; '.join(changes)}. "
            "Start with a new checkpointLocation, fork this one for another condition, or undo the change",
        )
