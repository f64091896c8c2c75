"""The words of the glossary and the names in the code agree: one word has one meaning."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "thetastream"
TERMS = [
    term.lower()
    for line in (ROOT / "docs/reference/glossary.md").read_text().splitlines()
    if line.startswith("| **")
    for found in re.findall(r"\*\*(.+?)\*\*", line.split("|")[1])
    for term in found.split(", ")
]
TEXTS = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
NAMES = [
    (path, node.name, isinstance(node, ast.ClassDef))
    for path, text in TEXTS.items()
    for node in ast.walk(ast.parse(text))
    if isinstance(node, ast.ClassDef | ast.FunctionDef)
]
CLASSES = {name for _, name, is_class in NAMES if is_class}

SAYS_NOTHING = {
    "Around",
    "Asked",
    "Fresh",
    "GivenHow",
    "GivenStream",
    "Heard",
    "Lazy",
    "Leftover",
    "Letter",
} | {
    "Say",
    "Seats",
    "Told",
}
"""Names of classes that do not say what the class is. Classes had these names once."""
NAMED_BY_CLASSES = {
    "biclique": "Biclique",
    "box": "Box",
    "control plan": "ControlPlan",
    "counters": "Counters",
    "engine": "Engine",
    "equality": "Equality",
    "dimension": "Dimension",
    "family": "Family",
    "flow": "Flow",
    "generation": "Generation",
    "index shape": "Shape",
    "local view": "LocalView",
    "mailbox": "Mailbox",
    "manifest": "Manifest",
    "measure": "Measure",
    "model": "Model",
    "notice": "Notice",
    "output": "Output",
    "pane": "Pane",
    "partial result": "PartialResults",
    "role": "Role",
    "run": "Run",
    "select list over a join": "JoinSelect",
    "side": "Side",
    "snapshot": "Snapshot",
    "statistics": "Statistics",
    "unit stage": "UnitStage",
}
OWNERS = {
    "fold": ("aggregates/", "engine/views.py", "families/views/", "joins/", "statements/"),
    "seal": (
        "results/",
        "stores/parquet_files.py",
        "runtime/control/files.py",
        "runtime/state/segment_cache.py",
    ),
    "question": ("results/", "service/"),
    "settle": (),
}
"""Words that had several meanings, and the rooms of the one that they have now."""


def list_words(name: str) -> list[str]:
    """List the words of a name in lower case, without their endings.

    >>> list_words("FoldedState"), list_words("unseal_chunk")
    (['fold', 'state'], ['unseal', 'chunk'])
    """
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)
    return [re.sub(r"(?:ed|ing|able|s)$", "", word.lower()) for word in words]


def find_strangers(word: str, rooms: tuple[str, ...]) -> Iterator[str]:
    """Find the functions and classes that are named by a word outside of its rooms."""
    for path, name, _ in NAMES:
        if word in list_words(name) and not path.startswith(rooms or "-"):
            yield f"{path}: {name}"


def test_each_word_is_explained_once() -> None:
    assert TERMS
    assert [term for term, n in Counter(TERMS).items() if n > 1] == []


@pytest.mark.parametrize("term", TERMS)
def test_each_word_is_used(term: str) -> None:
    """It is in the code as it is in the glossary, or in the name of a class."""
    text = re.compile(rf"\b{re.escape(term)}", re.IGNORECASE)
    camel = term.title().replace(" ", "")
    pages = (page.read_text() for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "glossary.md")
    assert camel in CLASSES or any(map(text.search, TEXTS.values())) or any(map(text.search, pages))


def test_classes_have_the_words_of_the_glossary() -> None:
    assert [term for term in NAMED_BY_CLASSES if term not in TERMS] == []
    assert [name for name in NAMED_BY_CLASSES.values() if name not in CLASSES] == []


def test_no_class_has_a_name_that_says_nothing() -> None:
    assert not CLASSES & SAYS_NOTHING
    assert [name for name in CLASSES if re.search(r"(Manager|Helper|Utils?|Handler)$", name)] == []


@pytest.mark.parametrize("word", OWNERS)
def test_a_word_with_one_meaning_stays_in_its_rooms(word: str) -> None:
    assert list(find_strangers(word, OWNERS[word])) == []
    assert not OWNERS[word] or any(word in list_words(name) for _, name, _ in NAMES), "the word is used"
