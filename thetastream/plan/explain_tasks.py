"""Explains several join tasks: what they share, then each task as a join of its own."""

from collections.abc import Iterator, Mapping

from thetastream.core.sides import Side
from thetastream.models.base import Model
from thetastream.plan.explain import format_one_line
from thetastream.plan.explain_cost import format_average
from thetastream.plan.routing_shares import compute_shares
from thetastream.plan.tasks import TasksPlan


def explain_tasks(plan: TasksPlan, model: Model, alone: Mapping[str, str]) -> str:
    """Return the shared plan, one fact per line, and the plan of each task by name."""
    titles = [("Shared by all tasks", "\n".join(_explain_shared(plan, model)) + "\n")]
    titles += [(f"Task {name}", text) for name, text in alone.items()]
    return "\n".join(f"==== {title} ====\n{text}" for title, text in titles)


def _explain_shared(plan: TasksPlan, model: Model) -> Iterator[str]:
    yield f"tasks     {', '.join(plan.names)}"
    yield f"model     {model.describe()}"
    copies = ", ".join(format_average(stream.sends) for stream in compute_shares(model))
    yield f"exchange  one for all tasks; sends a tuple: {copies}"
    for side, stream in zip(Side, plan.sides, strict=True):
        for text in stream.filters:
            yield f"before    {stream.alias}: {format_one_line(text)}"
        for column, text in stream.computed:
            users = [
                task.name
                for task in plan.tasks
                if column in (task.passes[side], *(name for name, _ in task.plan.sides[side].computed))
            ]
            yield f"before    {stream.alias}: {column} = {format_one_line(text)}   (for {', '.join(users)})"
        if not stream.computed:
            yield f"before    {stream.alias}: nothing computed; keys are payload columns"
    yield "state     each task stores what passes its filters, for its own window"
