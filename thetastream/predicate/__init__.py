"""Splits the text of a condition into conjuncts, comparisons and names. Only this package imports sqlglot."""

from thetastream.predicate.comparisons import expand_conjunct, find_comparisons
from thetastream.predicate.function import NUMPY, Predicate, predicate
from thetastream.predicate.prefix_form import write_candidates
from thetastream.predicate.sphere import within_metres
from thetastream.predicate.split import Comparison, split_comparisons, split_conjuncts
from thetastream.predicate.tokens import Phrase, make_error_at, parse, tokenize

__all__ = [
    "NUMPY",
    "Comparison",
    "Phrase",
    "Predicate",
    "expand_conjunct",
    "find_comparisons",
    "make_error_at",
    "parse",
    "predicate",
    "split_comparisons",
    "split_conjuncts",
    "tokenize",
    "within_metres",
    "write_candidates",
]
