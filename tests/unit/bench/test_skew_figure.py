"""The figure of skewed keys on units with a core each: a policy adds units to subgroups that work most."""

from bench.core.replay import Step
from bench.papers import inputs
from bench.papers.bistream.skew_bound import ADAPTED, HASHED, MODELS, estimate_s, replay
from bench.papers.bistream.skew_load import ZIPF


def share_of_busiest(step: Step) -> float:
    """The share of all comparisons that the busiest unit makes."""
    return max(unit.candidates for unit in step.units) / step.total("candidates")


def test_the_policy_spreads_the_heaviest_key_and_no_result_is_lost() -> None:
    query = inputs.zipf(3000, ZIPF, 1, results=20).within(1 / 4)
    hashed = [step for step, _ in replay(query, MODELS[HASHED])]
    busiest_s = max(map(estimate_s, hashed[-1].units))
    adapted = list(replay(query, MODELS[ADAPTED], epoch_s=busiest_s / 1.5))
    assert sum(step.results for step, _ in adapted) == query.expected
    assert sum(step.results for step in hashed) == query.expected
    n_units = [n for _, n in adapted]
    assert n_units[0] == 16 < n_units[-1] < 32
    assert share_of_busiest(adapted[-1][0]) < 0.7 * share_of_busiest(hashed[-1])
