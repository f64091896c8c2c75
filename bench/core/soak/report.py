"""The report of a soak: answers, growth of memory, files, state and the time of an epoch, and pictures."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.core.soak.growth import Growth, find_growth
from bench.core.soak.program import Sample
from bench.core.soak.queries import QUERIES

FLAT = 0.2
"""A figure is flat if its straight line grows by at most this share over the measured part of the run."""
LEAST_S = 1800
"""A shorter run shows nothing about growth, so its figures have no verdict."""


@dataclass
class Soak:
    """A run, and what it found."""

    minutes: float
    restarts: int = 0
    kills: int = 0
    samples: list[Sample] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For each query the number of results, and of rows that are too many or too few."""


def list_growths(found: Soak) -> list[Growth]:
    """Find the growth of every figure."""
    seconds = [sample.second for sample in found.samples]
    growths = [
        find_growth(name, seconds, [getattr(sample, name) for sample in found.samples])
        for name in ("java_mb", "python_mb", "descriptors", "files", "messages")
    ]
    for query in QUERIES:
        epochs = [one for one in found.epochs if one["query"] == query and one["received"]]
        numbers = list(range(len(epochs)))
        for name, values in (
            ("state, MB", [one["state_bytes"] / 1e6 for one in epochs]),
            ("epoch, s", [one["durations_ms"].get("triggerExecution", 0) / 1000 for one in epochs]),
        ):
            growths.append(find_growth(f"{query}: {name}", numbers, values))
    return growths


def describe(found: Soak) -> str:
    """Write the report in Markdown."""
    lines = [
        f"{found.minutes:g} minutes, which are {found.minutes / 24:.1f} days of event time; "
        f"{found.restarts} restarts, {found.kills} of them after SIGKILL.",
        "",
        "| query | results | wrong |",
        "|---|---|---|",
        *(f"| {name} | {rows:,} | {wrong:,} |" for name, (rows, wrong) in found.answers.items()),
        "",
        "| figure | mean of the second half | growth over it | |",
        "|---|---|---|---|",
    ]
    for growth in list_growths(found):
        verdict = "" if 60 * found.minutes < LEAST_S else "flat" if growth.share <= FLAT else "grows"
        lines.append(f"| {growth.name} | {growth.mean:,.2f} | {growth.share:+.0%} | {verdict} |")
    return "\n".join(lines) + "\n"


def draw_figures(found: Soak, path: Path) -> None:
    """Draw memory, files and the time of an epoch over the run."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 1, figsize=(9, 8), layout="constrained")
    seconds = [sample.second for sample in found.samples]
    for name in ("java_mb", "python_mb"):
        axes[0].plot(seconds, [getattr(sample, name) for sample in found.samples], label=name)
    for name in ("descriptors", "files", "messages"):
        axes[1].plot(seconds, [getattr(sample, name) for sample in found.samples], label=name)
    for query in QUERIES:
        epochs = [one for one in found.epochs if one["query"] == query]
        axes[2].plot([one["durations_ms"].get("triggerExecution", 0) / 1000 for one in epochs], label=query)
    for axis, title in zip(axes, ("memory, MB", "count", "seconds of an epoch, by epoch"), strict=True):
        axis.set_title(title)
        axis.set_ylim(bottom=0)
        axis.legend()
    figure.savefig(path)
    plt.close(figure)
