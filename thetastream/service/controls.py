"""The routes by which clients see and change the units of running joins.

    GET  /controls           the plans of the controlled joins of all queries
    POST /controls/{name}    a request: other units, another policy, a share of tuples to drop, or a join task
                             that ends or begins again

A request is a file in the control folder of the join, as ``th.control`` puts it. The service needs only the
checkpoint of the query, and the folder of mailboxes that it names.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict

from thetastream.core.errors import QueryError, ThetastreamError, suggest_or_list
from thetastream.engine.running_tasks import RunningTask
from thetastream.runtime.control.newest_offset import find_join, list_joins, read_checkpoint
from thetastream.runtime.control.plan import decode_model
from thetastream.runtime.control.request import NO_POLICY
from thetastream.runtime.control.request import Request as ControlRequest
from thetastream.service.access import Door
from thetastream.service.bodies import PROBLEMS, write_message

STOP = "none"
"""The name of the policy in a request after which no policy is followed."""
ERROR = "error"
"""What stands in place of the joins of a query whose checkpoint cannot be read."""
Size = int | list[int | list[int]]


class ControlBody(BaseModel):
    """One request. What is left out does not change."""

    model_config = ConfigDict(extra="forbid")

    join: str | None = None
    sizes: dict[str, Size] = {}
    model: dict[str, Any] | None = None
    shed_factor: float | None = None
    policy: dict[str, Any] | None = None
    add_task: str | None = None
    """A task of the program that was removed. A new condition needs Spark: see ``thetastream add-task``."""
    remove_task: str | None = None


class RequestName(BaseModel):
    """The name of a request, by which the plan says what became of it."""

    request: str


def add_control_routes(app: FastAPI, door: Door, checkpoints: Mapping[str, str]) -> None:
    """Add the routes of the queries with these checkpoints. Without checkpoints, there are no such routes."""
    if not checkpoints:
        return

    @app.get("/controls", responses=PROBLEMS)
    def list_controls(request: Request) -> dict[str, dict[str, dict[str, Any]]]:
        door.admit(request, "watch")
        return {name: _describe(name, path) for name, path in checkpoints.items()}

    @app.post("/controls/{name}", responses=PROBLEMS)
    def control(request: Request, name: str, body: ControlBody) -> RequestName:
        door.admit(request, "control", query=name, **body.model_dump(exclude_unset=True))
        if name not in checkpoints:
            known = suggest_or_list(name, checkpoints)
            raise QueryError("UNKNOWN_QUERY", f"the service controls no query {name!r}{known}")
        asked = ControlRequest(
            {size: _freeze(value) for size, value in body.sizes.items()},
            None if body.model is None else decode_model(body.model),
            body.shed_factor,
            NO_POLICY if body.policy == {"name": STOP} else body.policy,
            None if body.add_task is None else RunningTask(body.add_task),
            body.remove_task,
        )
        if asked == ControlRequest():
            what = "a request must name sizes, a model, a shed_factor, a policy or a task"
            raise QueryError("BAD_REQUEST", what)
        found = find_join(read_checkpoint(checkpoints[name]), body.join, f"query {name!r}")
        return RequestName(request=found.put(asked))


def _describe(name: str, checkpoint: str) -> dict[str, dict[str, Any]]:
    """Describe the joins of one query; if its checkpoint cannot be read, the error stands in their place."""
    try:
        return {join: one.describe(None) for join, one in list_joins(checkpoint, f"query {name!r}").items()}
    except ThetastreamError as error:
        return {ERROR: {"condition": error.condition, "message": write_message(error)}}


def _freeze(value: Any) -> Any:
    """Return a size with tuples in place of lists."""
    return tuple(map(_freeze, value)) if isinstance(value, list) else value
