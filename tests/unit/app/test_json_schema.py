"""The JSON Schema of job files says what the reader of job files allows."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from thetastream.app.cli import main
from thetastream.app.job.document import KEYS, examine
from thetastream.app.job.json_schema import make_schema, write_schema
from thetastream.models import REGISTRY as MODELS
from thetastream.runtime.control.policies import REGISTRY as POLICIES
from thetastream.stores.registry import REGISTRY as STORES

ROOT = Path(__file__).parents[3]
SCHEMA = make_schema()
PLACES = {
    (): SCHEMA,
    ("sources", "a"): SCHEMA["properties"]["sources"]["additionalProperties"],
    ("tables", "t"): SCHEMA["properties"]["tables"]["additionalProperties"],
    ("tasks", "t"): SCHEMA["properties"]["tasks"]["additionalProperties"],
    ("sink",): SCHEMA["properties"]["sink"]["anyOf"][0],
    ("shed",): SCHEMA["properties"]["shed"],
    ("statistics",): SCHEMA["properties"]["statistics"],
    ("rechoose",): SCHEMA["properties"]["rechoose"],
    ("options",): SCHEMA["properties"]["options"],
    ("model",): SCHEMA["properties"]["model"]["anyOf"][1],
    ("policy",): SCHEMA["properties"]["policy"]["anyOf"][0],
}
"""The tables of a job, and the schema of each."""


def find_unknown(place: tuple[str, ...], keys: dict[str, Any]) -> str:
    """Return all errors about unknown keys of a job that has these keys in one of its tables."""
    job: dict[str, Any] = {}
    table = job
    for name in place:
        table = table.setdefault(name, {})
    table |= keys
    problems = examine(job, Path("/jobs")).all_problems
    return "\n".join(one.message for one in problems if one.condition == "UNKNOWN_KEY")


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(place) or "top")
def test_the_schema_has_the_keys_that_the_reader_allows(place: tuple[str, ...]) -> None:
    schema = PLACES[place]
    assert schema["additionalProperties"] is False
    assert f"has no {'strange'!r}" in find_unknown(place, {"strange": 1}) or place in ((), ("options",))
    # The reader knows each key of the schema, whatever it thinks of its value.
    unknown = find_unknown(place, dict.fromkeys(schema["properties"], 1))
    assert not any(f"no {name!r}" in unknown for name in schema["properties"]), unknown


def test_each_kind_of_model_policy_and_store_is_named() -> None:
    properties = SCHEMA["properties"]
    assert SCHEMA["properties"].keys() == KEYS.keys()

    def list_names(table: str, key: str) -> list[str]:
        named = (one["properties"].get(key, {}) for one in properties[table]["anyOf"])
        return [one["const"] for one in named if "const" in one]

    assert list_names("model", "name") == [*MODELS]
    assert list_names("policy", "name") == [*POLICIES]
    assert list_names("sink", "store") == [*STORES]
    biclique = properties["model"]["anyOf"][[*MODELS].index("biclique")]
    assert "name" not in biclique["required"]
    assert properties["shed"]["required"] == ["threshold", "capacity"]
    assert properties["options"]["properties"]["max_units"]["type"] == "integer"


def test_the_schema_is_published_and_lies_beside_a_new_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published = ROOT / "docs" / "reference" / "job.schema.json"
    assert published.read_text() == write_schema(), f"run: thetastream schema > {published}"
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA
    assert main(["init", str(tmp_path / "example")]) == 0
    text = (tmp_path / "example" / "job.toml").read_text()
    assert text.startswith("#:schema ./job.schema.json\n")
    assert json.loads((tmp_path / "example" / "job.schema.json").read_text()) == SCHEMA
    assert tomllib.loads(text)["sources"]["bids"]["options"] == {"header": True, "maxFilesPerTrigger": 1}
