"""The identity of a join hop by hop."""

import json
from typing import Any

from thetastream.conditions.phrases import canonicalize
from thetastream.core.identity import CONDITION, Part
from thetastream.core.spans import spell
from thetastream.engine.multiway.query import MultiwayQuery
from thetastream.families.hops.graph import LoweredGraph
from thetastream.lowering.identity import (
    MODEL,
    WINDOW,
    Parts,
    Reading,
    describe_count,
    describe_dimension,
    describe_equality,
    describe_inputs,
    identify_condition,
    identify_model,
    identify_streams,
    name_keys,
    name_predicate,
)
from thetastream.models.ring import EPOCH


def identify_multiway(plan: LoweredGraph, query: MultiwayQuery, reading: Reading) -> Parts:
    """Return the identity of a join hop by hop.

    Its window must stay as it is, because partial results that were found in the old window are in flight.
    """
    graph = query.graph
    names = [name_keys(side, spec, reading) for side, spec in zip(plan.sides, graph.sides, strict=True)]
    edges: dict[str, Any] = {}
    spans, words = [], []
    for (left, right), edge in sorted(graph.edges.items()):
        pair = [names[left], names[right]]
        edges[f"{left} {right}"] = [
            sorted(describe_equality(pair, equality) for equality in edge.equalities),
            sorted(describe_dimension(pair, dimension) for dimension in edge.dimensions),
            sorted(edge.same),
        ]
        low, high = edge.window
        spans.append([low, high])
        if low is not None or high is not None:
            a, b = graph.sides[left].alias, graph.sides[right].alias
            words.append(f"{a} - {b} from {spell(low)} to {spell(high)}")
    if graph.counts is not None:
        spans = [list(graph.counts)]
        words = [describe_count(n, side) for n, side in zip(graph.counts, plan.sides, strict=True)]
    meaning = {
        **describe_inputs(plan.sides, reading),
        "edges": edges,
        "predicates": sorted(name_predicate(predicate) for predicate in graph.predicates),
        "residual": sorted(canonicalize(text, reading.is_case_sensitive) for text in plan.residual),
    }
    return {
        **identify_streams(plan.sides, graph.sides),
        CONDITION: identify_condition(meaning, plan.on),
        WINDOW: Part(json.dumps(spans), ", ".join(words) or "the full history"),
        MODEL: identify_model(query.model, reading),
        **_identify_hops(query),
    }


def _identify_hops(query: MultiwayQuery) -> Parts:
    """Return the part of a ring that makes all hops in one epoch, whose nodes store copies."""
    if query.model.stored_once is None:
        return {}
    older = (
        'th.Ring(..., hops="mailbox") makes a hop in each epoch, as a checkpoint without this setting does'
    )
    return {"the setting hops of the ring": Part(EPOCH, f'"{EPOCH}" ({older})')}
