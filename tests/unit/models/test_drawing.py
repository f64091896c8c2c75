"""Every model draws each of its units, and a plan's description is well-formed HTML."""

from xml.etree import ElementTree

import pytest

import thetastream as th
from thetastream.joins.notebook import render_html
from thetastream.lowering.report import Fact, Section, print_sections
from thetastream.models import REGISTRY

MODELS = [
    th.Biclique((2, 3)),
    th.Split(3),
    th.Matrix(2, 3),
    th.Ring(5),
    th.Chain(4),
    th.Chain(4, fast_forward=True),
    th.ATR(3, segment="1 second"),
    th.CTR(3, segment="1 second"),
]


def test_every_model_is_here():
    assert {type(model) for model in MODELS} == set(REGISTRY.values())


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_model_draws_its_units(model):
    drawing = model.draw()
    assert len(drawing.units) == len({unit[:2] for unit in drawing.units}) == model.n_units
    picture = ElementTree.fromstring(drawing.to_svg())
    circles = picture.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == model.n_units
    for circle in circles:
        assert 0 < float(circle.get("cx")) < float(picture.get("width"))
        assert 0 < float(circle.get("cy")) < float(picture.get("height"))


def test_a_large_model_draws_some_units_and_says_how_many_there_are():
    drawing = th.Split(100).draw()
    assert len(drawing.units) == 100
    assert "and 60 more units" in drawing.to_svg()


def test_html_shows_what_each_fact_is_about_its_value_and_the_reason():
    explanation = (
        Section("Rewritten", (Fact("index", "a.x < b.y", "one <key>"),), width=8),
        Section("Step 1", sections=(Section("Parsed", (Fact("on", "a.x  <\n b.y   (a comment)"),)),)),
        Section("Shaped", (Fact("", "nothing the index can use"),)),
    )
    shown = render_html("Plan of a & b", [th.Matrix(1, 2)], explanation)
    page = ElementTree.fromstring(shown)
    assert page.find("b").text == "Plan of a & b"
    cells = [[cell.text for cell in row] for row in page.iter("tr")]
    assert cells == [
        ["index", "a.x < b.y", "one <key>"],
        ["on", "a.x  <\n b.y   (a comment)", None],
        [None, "nothing the index can use", None],
    ]
    assert [summary.text for summary in page.iter("summary")] == ["Rewritten", "Step 1", "Parsed", "Shaped"]
    # The first section is open, and the columns of all tables have the same widths.
    sections = [(part.find("summary").text, part.get("open")) for part in page.findall("details")]
    assert sections == [("Rewritten", "open"), ("Step 1", None), ("Shaped", None)]
    assert len({ElementTree.tostring(table.find("colgroup")) for table in page.iter("table")}) == 1


def test_text_shows_sections_of_sections_under_their_titles():
    step = Section("Step", sections=(Section("Parsed", (Fact("on", "true"),), width=5),))
    text = "== Step ==\n== Parsed ==\non    true\n"
    writing = Section("Writing", (Fact("", "rows"),))
    assert print_sections([step, step, writing]) == f"{text}\n\n{text}\n== Writing ==\nrows\n"
    task = Section("Task near", sections=(Section("Parsed"),), marks="====")
    assert print_sections([task, task]) == (
        "==== Task near ====\n== Parsed ==\n\n==== Task near ====\n== Parsed ==\n"
    )
