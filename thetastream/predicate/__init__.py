"""Condition text to conjuncts, comparisons and names. The one package that imports sqlglot."""

from thetastream.predicate.function import Predicate, predicate
from thetastream.predicate.split import Comparison, comparisons, conjuncts
from thetastream.predicate.tokens import Phrase, parse, pointed, tokenize

__all__ = [
    "Comparison",
    "Phrase",
    "Predicate",
    "comparisons",
    "conjuncts",
    "parse",
    "pointed",
    "predicate",
    "tokenize",
]
