"""The import directions of docs/architecture.md, as import-linter checks them."""

from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).parent.parent


def test_imports_point_downward(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename=str(ROOT / ".importlinter"), no_cache=True)
    assert status == 0, capsys.readouterr().out
