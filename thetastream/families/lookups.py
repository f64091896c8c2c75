"""Plans joins of a stream with a table by an index of the table, without a window and without state."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from thetastream.conditions import Phrase, Predicate
from thetastream.core.how import How
from thetastream.core.identity import CONDITION, KIND
from thetastream.core.sides import Side
from thetastream.engine.answers.candidates import CandidateColumns
from thetastream.engine.lookup import Lookup
from thetastream.engine.store.box import IndexPlan
from thetastream.families.answers import carry_residual, describe_answers, describe_candidates
from thetastream.families.pairs.flow import describe_pairs
from thetastream.lowering.lower import lower
from thetastream.lowering.physical import PhysicalPlan
from thetastream.lowering.query import Query, Resolver, Stream, list_conditions
from thetastream.lowering.report import format_index, format_one_line
from thetastream.lowering.selectivity import find_aliases
from thetastream.runtime.lookup_steps import LookupFlow


@dataclass(frozen=True)
class LookupPlan:
    """A join of a stream with a table."""

    physical: PhysicalPlan
    table: Side
    """The side of the table. The stream is the other side."""
    on: tuple[str, ...]
    """The conditions as the user wrote them."""

    def flow(self) -> LookupFlow:
        """Describe how tuples become results."""
        return replace(self._describe_flow(), words=self._list_words())

    def _list_words(self) -> dict[str, str]:
        how = self.physical.how
        return {CONDITION: " AND ".join(self.on)} | ({} if how.is_inner else {KIND: how.name})

    def _describe_flow(self) -> LookupFlow:
        plan = self.physical
        index = IndexPlan(plan.condition, self.table, plan.indexes[self.table])
        lookup = Lookup(index, plan.how, plan.ranking)
        if plan.how.is_inner:
            return LookupFlow(self._name(), lookup, plan.sides, describe_pairs(plan.sides, plan.residual))
        answers = describe_answers(plan.sides, plan.how)
        if not plan.residual:
            return LookupFlow(self._name(), lookup, plan.sides, answers)
        left, right = plan.condition.sides
        columns = CandidateColumns(plan.how, (left.columns, right.columns), plan.ranking)
        lookup = replace(lookup, candidates=columns)
        return LookupFlow(self._name(), lookup, plan.sides, answers, describe_candidates(plan, columns))

    def _name(self) -> str:
        """Name the join by what the user wrote and by the columns that it needs."""
        carried = [(side.alias, [one.field for one in side.carried]) for side in self.physical.sides]
        meaning = repr((carried, self.physical.on, self.physical.how.name))
        return blake2b(meaning.encode(), digest_size=8).hexdigest()

    def describe(self) -> str:
        """Describe the lookup in a few words."""
        index = format_index(self.physical.indexes[self.table])
        rule, texts = self.physical.ranking_rule, map(format_one_line, self.physical.residual)
        nearest, behind = "" if rule is None else f"; the nearest {rule}", " and ".join(texts)
        evaluated = f"; Spark evaluates {behind} for the pairs that it finds" if behind else ""
        return f"by an index of the table: {index}{nearest}{evaluated}"


def plan_lookup(
    inputs: tuple[Stream, Stream],
    phrases: Sequence[Phrase],
    predicates: Sequence[Predicate],
    how: How,
    resolver: Resolver,
    *,
    table: Side,
    is_declared: bool = False,
    on: Sequence[str] | None = None,
) -> LookupPlan | str:
    """Plan the lookup of one input in the other one, the table, or say why no index of the table can do it.

    Parameters
    ----------
    inputs : pair of Stream
        A stream and a table, or two tables, in the order of the user.
    phrases, predicates : sequence of Phrase, sequence of Predicate
        The condition.
    how : How
        It does not preserve the table.
    resolver : Resolver
    table : Side
        Which of the inputs is the table.
    is_declared : bool
        Whether the table is a ``th.Table``, whose changes Spark's own join does not follow. It is looked up
        also if nothing but equalities narrows what an index reads.
    on : sequence of str, optional
        The conditions as the user wrote them, if ``phrases`` are others.
    """
    aliases = [one.alias for one in inputs]
    parts: list[Phrase | Predicate] = [*phrases, *predicates]
    compares = any(len(find_aliases(part, aliases)) == 2 for part in parts)
    if not is_declared and how.nearest is None and not compares:
        return "nothing compares the stream with the table"
    # A table has no window, so event times are columns as others are.
    left, right = (replace(one, is_streaming=False, event_time=None).narrowed for one in inputs)
    texts = tuple(phrase.text for phrase in phrases)
    query = Query((left, right), texts, tuple(phrases), tuple(predicates), how=how)
    _, lowered = carry_residual(query, lower(query, resolver), resolver)
    physical = lowered.physical
    condition = physical.condition
    if not is_declared and how.nearest is None and not (condition.dimensions or condition.measured):
        return "no inequality, band or measure narrows what an index would read"
    return LookupPlan(physical, table, list_conditions(texts, predicates) if on is None else tuple(on))
