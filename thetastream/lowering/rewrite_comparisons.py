"""Rewrites a comparison of a left with a right expression: f(l) OP g(r).

    equality         two key columns that are equal; hashes if their type has no exact keys
    <=>              the same, where NULL is the highest key
    collated texts   the same over the keys of their collation
    <, <=, >, >=     two key columns in the type in which Spark compares

Each function returns None, or the reason why the conjunct must be evaluated again behind the join.

The key of a collated text is a text of equal bytes for equal texts, in the same order:

    key(x)  =  lower(x) without final sigmas    UTF8_LCASE
    key(x)  =  x                                UTF8_BINARY
    key(x)  =  key(rtrim(x))                    their variants with _RTRIM

Spark compares by UTF8_LCASE code point by code point. Its ``lower`` reads whole words, and differs only in
the sigma at the end of a word. The other collations compare by the tables of ICU, and no SQL
function of Spark returns their keys.
"""

from collections.abc import Iterator

from thetastream.conditions import parse
from thetastream.core.condition import Domain, ExactOrder
from thetastream.core.spark_types import is_day_time
from thetastream.lowering.conjunct import Conjunct, Ordering, TypedPair
from thetastream.lowering.domains import find_domain, is_hashable, write_cast
from thetastream.lowering.plain_columns import Conversion
from thetastream.lowering.side_keys import SideKeys

_RTRIM = "_RTRIM"
_BASES = ("UTF8_BINARY", "UTF8_LCASE")


def rewrite_comparison(conjunct: Conjunct, typed: TypedPair, op: str) -> str | None:
    """Rewrite ``f OP g``."""
    common = typed.common
    if common is None:
        return f"Spark compares {typed.f_type} with {typed.g_type} by rules of its own"
    if is_collated(common):
        texts = [write_collation_key(text, type_, common) for text, type_ in typed.sides]
        if texts[0] is None or texts[1] is None:
            return f"Spark has no function for the keys of type {common}"
        common = "string"
        typed = TypedPair(parse(texts[0]), "string", parse(texts[1]), "string", "string")
    if op in ("=", "<=>"):
        return _rewrite_equality(conjunct, typed, op)
    domain = find_domain(common)
    if domain is None:
        return f"keys of type {common} have no order the index knows"
    (left, plus_left), (right, plus_right) = (
        keys.add_with_delta(phrase, type_, common, domain)
        for keys, (phrase, type_) in zip(conjunct.out.keys, typed.phrases, strict=True)
    )
    exact = op
    if not domain.is_exact:
        op = op[0] + "="  # different values may have equal keys
    conjunct.out.orderings.append(
        Ordering(left, op, right, plus_right - plus_left, conjunct.number, conjunct.text)
    )
    conjunct.add_note("key", f"compared as {common} ({domain.value} domain)")
    if domain.is_exact or (
        plus_left == plus_right == 0 and conjunct.add_check(left, right, ExactOrder(exact))
    ):
        return None
    return f"{domain.value} keys are approximate"


def _rewrite_equality(conjunct: Conjunct, typed: TypedPair, op: str) -> str | None:
    common, domain, is_nullable = typed.common or "", find_domain(typed.common or ""), op == "<=>"
    if domain is not None and domain.is_exact:
        left, right = conjunct.add_keys(typed, domain, is_nullable)
        conjunct.out.equalities.append((left, right, conjunct.text))
        if is_nullable and _has_highest_key(common):
            flags = [
                keys.add_sql(f"({text}) IS NULL", None, Domain.INT) for keys, text in _pair(conjunct, typed)
            ]
            conjunct.out.equalities.append((flags[0], flags[1], conjunct.text))
        conjunct.add_note("key", f"equal as {common} ({domain.value} domain)")
        return None
    if not is_hashable(common):
        return f"values of type {common} are equal by rules of their own"
    values = [write_cast(text, type_, common) for text, type_ in typed.sides]
    left, right = (
        # A hash of 32 bits is enough, and it is small to send and store. Candidates are compared again.
        keys.add_sql(_write_hash(value, is_nullable), None if is_nullable else value, Domain.INT)
        for keys, value in zip(conjunct.out.keys, values, strict=True)
    )
    conjunct.out.equalities.append((left, right, conjunct.text))
    columns = _find_byte_columns(conjunct, typed)
    if columns is not None:
        conjunct.out.same.append(columns)
        conjunct.out.hashed.append(len(conjunct.out.equalities) - 1)
        conjunct.add_note("key", f"equal by hash of {common}, then byte by byte")
        return None
    conjunct.add_note("key", f"equal by hash of {common}")
    if domain is not None and not conjunct.query.how.is_inner:
        # Semi and anti joins send no payload of the other stream, so the values travel as keys.
        left, right = conjunct.add_keys(typed, domain, is_nullable)
        if conjunct.add_check(left, right, ExactOrder(op)):
            return None
    return "equal hashes are not yet equal values"


def _pair(conjunct: Conjunct, typed: TypedPair) -> Iterator[tuple[SideKeys, str]]:
    yield from zip(conjunct.out.keys, (text for text, _ in typed.sides), strict=True)


def _has_highest_key(type_: str) -> bool:
    """Whether a value of this type may have the highest key of 64 bits, which NULL has too."""
    return type_ in ("bigint", "timestamp", "timestamp_ntz") or is_day_time(type_)


def _write_hash(value: str, is_nullable: bool) -> str:
    """Write a hash of 32 bits. Spark's ``hash(NULL)`` is a number, and the key of a NULL must be NULL."""
    hashed = Conversion.HASH.write(value)
    return f"CASE WHEN ({value}) IS NOT NULL THEN {hashed} END" if is_nullable else hashed


def _find_byte_columns(conjunct: Conjunct, typed: TypedPair) -> tuple[str, str] | None:
    """Return the block columns of both sides, or None if equal values may have different bytes."""
    if typed.f_type != typed.g_type or typed.common not in ("string", "binary"):
        return None
    left, right = (
        keys.find_payload_column(phrase)
        for keys, (phrase, _) in zip(conjunct.out.keys, typed.phrases, strict=True)
    )
    return None if left is None or right is None else (left, right)


def is_collated(type_: str) -> bool:
    """Whether texts of this type are compared by a collation other than by their bytes."""
    return type_.startswith("string collate ")


def write_collation_key(text: str, type_: str, common: str) -> str | None:
    """Write the key of an expression in a collated type. Return None if no SQL function computes it.

    >>> write_collation_key("a.s", "string", "string collate UTF8_BINARY_RTRIM")
    'rtrim((CAST((a.s) AS STRING COLLATE UTF8_BINARY_RTRIM)) COLLATE UTF8_BINARY)'
    """
    name = common.removeprefix("string collate ").upper()
    base = name.removesuffix(_RTRIM)
    if base not in _BASES:
        return None
    key = f"({write_cast(text, type_, common)}) COLLATE UTF8_BINARY"
    key = f"rtrim({key})" if name.endswith(_RTRIM) else key
    return f"replace(lower({key}), 'ς', 'σ')" if base == "UTF8_LCASE" else key
