"""Splits the text of a condition into conjuncts, comparisons and names. Only this package imports sqlglot."""

from thetastream.conditions.comparisons import (
    expand_conjunct,
    find_comparisons,
    find_negated_pair,
    strip_not,
)
from thetastream.conditions.jaccard import jaccard
from thetastream.conditions.phrases import Comparison, split_comparisons, split_conjuncts, write_candidates
from thetastream.conditions.python import NUMPY, Predicate, predicate, stable
from thetastream.conditions.sphere import metres, within_metres
from thetastream.conditions.tokens import Phrase, make_error_at, parse, tokenize

__all__ = [
    "NUMPY",
    "Comparison",
    "Phrase",
    "Predicate",
    "expand_conjunct",
    "find_comparisons",
    "find_negated_pair",
    "jaccard",
    "make_error_at",
    "metres",
    "parse",
    "predicate",
    "split_comparisons",
    "split_conjuncts",
    "stable",
    "strip_not",
    "tokenize",
    "within_metres",
    "write_candidates",
]
