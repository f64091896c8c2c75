"""What PyPI shows: links that work there, and extras that exist."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_links_of_the_readme_work_outside_the_repository():
    (rule,) = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]
    text = re.sub(rule["pattern"], rule["replacement"], (ROOT / "README.md").read_text())
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 5
    assert not [link for link in links if not link.startswith("https://")]
    assert "blob/main/docs/guide/tutorial.md" in text


def test_the_extra_all_has_every_extra_of_users():
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(re.fullmatch(r"thetastream\[(.*)\]", everything)[1].split(",")) == set(extras) - {
        "all",
        "dev",
        "docs",
        "bench",
        "kafka-client",
        "s3-server",
    }


def test_a_project_says_where_its_parts_are():
    assert {"Documentation", "Source", "Changelog", "Contributing"} <= set(PROJECT["project"]["urls"])
