"""Splits the text of a condition into conjuncts, comparisons and names. Only this package imports sqlglot."""

from thetastream.predicate.function import Predicate, predicate
from thetastream.predicate.split import Comparison, split_comparisons, split_conjuncts
from thetastream.predicate.tokens import Phrase, parse, pointed, tokenize

__all__ = [
    "Comparison",
    "Phrase",
    "Predicate",
    "parse",
    "pointed",
    "predicate",
    "split_comparisons",
    "split_conjuncts",
    "tokenize",
]
