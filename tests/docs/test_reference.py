"""The tables of docs/reference name every condition, setting and command of the source, and nothing else."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import thetastream as th
from thetastream.app.cli import build_parser
from thetastream.app.cli.errors import read_sections
from thetastream.families.options import Options, list_options, write_table

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
CONDITION = re.compile(r"[A-Z]+(_[A-Z]+)*")
RAISERS = ("refuse", "refuse_unusable", "_refuse_list", "make_error_at", "Refusal")
"""Functions that take a condition name and make or raise an error."""


def rows(page, heading):
    """Read the first cells, without their backticks, of the table behind a heading."""
    text = (REFERENCE / page).read_text()
    section = text[text.index(heading) :].split("\n## ")[0]
    return [name for line in re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE) for name in names(line)]


def names(cell):
    return re.findall(r"`([^`]+)`", cell)


def find_raised():
    """Find every condition name in the source: name -> its position."""
    found = {}
    for path in sorted((ROOT / "thetastream").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for text in conditions(node):
                if CONDITION.fullmatch(text):
                    found.setdefault(text, f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def conditions(node):
    """Find the texts in an expression that are condition names if they have the form of one."""
    match node:
        # QueryError("NAME", ...), refuse("NAME", ...), make_error_at(text, start, what, "NAME")
        case ast.Call(func=ast.Name(id=name), args=args) if name.endswith("Error") or name in RAISERS:
            return constants(args)
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super"))), args=args):
            return constants(args[:1])
        # ("NAME", "a sentence"): a condition name that is chosen before it is raised
        case ast.Tuple(elts=[first, ast.Constant(value=str(sentence))]) if " " in sentence:
            return constants([first])
        # error.getCondition() or "NAME"
        case ast.BoolOp(values=[*_, ast.Constant(value=str(text))]):
            return [text]
    return []


def constants(nodes):
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_every_condition_has_a_section_with_an_example_and_nothing_else_has():
    found, sections = find_raised(), read_sections()
    listed = list(sections)
    assert not [name for name, section in sections.items() if f"[{name}]" not in section]
    assert not [name for name, section in sections.items() if not section.startswith(f"{name} (")]
    assert sorted(listed) == listed
    assert set(found) - set(listed) == set(), {name: found[name] for name in set(found) - set(listed)}
    assert set(listed) - set(found) == set()


def test_every_public_name_is_in_the_api_and_nothing_else():
    page = (REFERENCE / "api.md").read_text()
    named = re.findall(r"^::: thetastream\.(?:\w+\.)*(\w+)$", page, re.MULTILINE)
    modules = {"checkpoints": th.checkpoints, "errors": th.errors, "types": th.types}
    inside = [name for module in modules.values() for name in module.__all__]
    assert sorted(named) == sorted({*th.__all__, *inside} - modules.keys())


@pytest.mark.parametrize("kind", [th.Plan, th.types.ControlHandle, th.types.JoinTasks])
def test_what_users_call_of_a_class_is_in_the_api(kind: type) -> None:
    page = (REFERENCE / "api.md").read_text()
    entry = re.search(
        rf"^::: thetastream\.(?:\w+\.)*{kind.__name__}\n    options:\n.*\[(.*)\]$", page, re.MULTILINE
    )
    assert entry is not None
    own = {
        name for name, value in vars(kind).items() if inspect.isfunction(value) or isinstance(value, property)
    }
    assert {name for name in own if not name.startswith("_")} <= set(entry[1].split(", "))


def test_the_table_of_settings_is_written_from_the_declarations():
    page = (REFERENCE / "settings.md").read_text()
    table = [
        line for line in page.split("## Settings of the Spark")[0].splitlines() if line.startswith("| `")
    ]
    assert table == write_table()


def test_texts_name_only_settings_that_exist():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "thetastream").rglob("*.py")]
    named = {
        name
        for page in pages
        for name in re.findall(r"\bspark\.thetastream\.([a-z][\w.]*\w)", page.read_text())
    }
    assert named <= set(list_options(Options))
    assert "mailbox" in named


def test_every_command_is_in_the_table_and_nothing_else():
    (commands,) = (
        action for action in build_parser()._actions if action.dest == "==SUPPRESS==" or action.choices
    )
    assert {name.split()[0] for name in rows("cli.md", "# The command line")} == set(commands.choices)
