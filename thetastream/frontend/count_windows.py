"""Reads the count windows of a join, and refuses what they do not allow."""

from thetastream.errors import QueryError
from thetastream.frontend.checked import CheckedRequest
from thetastream.frontend.window import find_arrival_problems, is_counted, read_counts


def read_count_windows(checked: CheckedRequest) -> tuple[int, ...] | None:
    """Return how many tuples of each stream stay joinable; None if no window counts tuples."""
    within = checked.request.within
    if not is_counted(within):
        return None
    if checked.archive_period_us is not None:
        what = "archive_period is a span of event time, and a count window has none; leave it out"
        checked.problems.append(QueryError("ARCHIVE_PERIOD", what))
    refuse_unordered(checked)
    return read_counts(within, checked.streams, checked.problems)


def refuse_unordered(checked: CheckedRequest) -> None:
    """Add errors for streams that have no common order of arrival."""
    known = set(map(str, checked.problems))
    found = find_arrival_problems(checked.streams)
    checked.problems.extend(problem for problem in found if str(problem) not in known)
