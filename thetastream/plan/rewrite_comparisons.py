"""Rewrites a comparison of a left with a right expression: f(l) OP g(r).

    event times      the window
    equality         two key columns that are equal; hashes if their type has no exact keys
    <, <=, >, >=     two key columns in the type in which Spark compares

Each function returns None, or the reason why the conjunct must be evaluated again behind the join.
"""

from thetastream.core.condition import Domain
from thetastream.core.exact import ExactOrder
from thetastream.plan.conjunct import Conjunct, TypedPair
from thetastream.plan.domains import find_domain, is_hashable, write_cast
from thetastream.plan.event_time import SLACK_US, read_offset
from thetastream.plan.rewritten_condition import Ordering


def rewrite_comparison(conjunct: Conjunct, typed: TypedPair, op: str) -> str | None:
    """Rewrite ``f OP g``."""
    if _narrow_window(conjunct, typed, op) and op != "=":
        return None
    if typed.common is None:
        return f"Spark compares {typed.f_type} with {typed.g_type} by rules of its own"
    if op == "=":
        return _rewrite_equality(conjunct, typed)
    domain = find_domain(typed.common)
    if domain is None:
        return f"keys of type {typed.common} have no order the index knows"
    (left, plus_left), (right, plus_right) = (
        keys.add_with_delta(phrase, type_, typed.common, domain)
        for keys, (phrase, type_) in zip(conjunct.out.keys, typed.phrases, strict=True)
    )
    exact = op
    if not domain.is_exact:
        op = op[0] + "="  # different values may have equal keys
    conjunct.out.orderings.append(
        Ordering(left, op, right, plus_right - plus_left, conjunct.number, conjunct.text)
    )
    conjunct.add_note("key", f"compared as {typed.common} ({domain.value} domain)")
    if domain.is_exact or (
        plus_left == plus_right == 0 and conjunct.add_check(left, right, ExactOrder(exact))
    ):
        return None
    return f"{domain.value} keys are approximate"


def _rewrite_equality(conjunct: Conjunct, typed: TypedPair) -> str | None:
    assert typed.common is not None
    domain = find_domain(typed.common)
    if domain is not None and domain.is_exact:
        left, right = conjunct.add_keys(typed, domain)
        conjunct.out.equalities.append((left, right, conjunct.text))
        conjunct.add_note("key", f"equal as {typed.common} ({domain.value} domain)")
        return None
    if not is_hashable(typed.common):
        return f"values of type {typed.common} are equal by rules of their own"
    values = [write_cast(text, type_, typed.common) for text, type_ in typed.sides]
    left, right = (
        # A hash of 32 bits is enough, and it is small to send and store. Candidates are compared again.
        keys.add_sql(f"hash({value})", value, Domain.INT)
        for keys, value in zip(conjunct.out.keys, values, strict=True)
    )
    conjunct.out.equalities.append((left, right, conjunct.text))
    columns = _find_byte_columns(conjunct, typed)
    if columns is not None:
        conjunct.out.same.append(columns)
        conjunct.add_note("key", f"equal by hash of {typed.common}, then byte by byte")
        return None
    conjunct.add_note("key", f"equal by hash of {typed.common}")
    if domain is not None and not conjunct.query.how.is_inner:
        # Semi and anti joins send no payload of the other stream, so the values travel as keys.
        left, right = conjunct.add_keys(typed, domain)
        if conjunct.add_check(left, right, ExactOrder("=")):
            return None
    return "equal hashes are not yet equal values"


def _find_byte_columns(conjunct: Conjunct, typed: TypedPair) -> tuple[str, str] | None:
    """Return the block columns of both sides, or None if equal values may have different bytes."""
    if typed.f_type != typed.g_type or typed.common not in ("string", "binary"):
        return None
    left, right = (
        keys.find_payload_column(phrase)
        for keys, (phrase, _) in zip(conjunct.out.keys, typed.phrases, strict=True)
    )
    return None if left is None or right is None else (left, right)


def _narrow_window(conjunct: Conjunct, typed: TypedPair, op: str) -> bool:
    """Narrow the window by a comparison of event times; return whether the window implies it."""
    if typed.f_type != typed.g_type:
        return False
    left = read_offset(typed.f, conjunct.query.streams[0], conjunct.resolver)
    right = read_offset(typed.g, conjunct.query.streams[1], conjunct.resolver)
    if left is None or right is None:
        return False
    is_exact = left.is_exact and right.is_exact
    bound, slack = right.us - left.us, 0 if is_exact else SLACK_US
    low = bound + (op == ">") - slack if op in (">", ">=", "=") else None
    high = bound - (op == "<") + slack if op in ("<", "<=", "=") else None
    conjunct.narrow_window(low, high, is_exact)
    return is_exact
