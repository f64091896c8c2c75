"""The command that damages every kind of file goes on where it stopped, and its table counts all cases."""

from pathlib import Path

from tests.support.damages import ALLOWED, EXACT, Case, read_cases, run, write_table


def test_each_kind_of_file_is_damaged_and_a_run_goes_on(tmp_path: Path) -> None:
    suites = ("files", "parquet", "delta")
    first = run(tmp_path, 1, suites)
    for name, n_kinds in (("parquet", 6), ("delta", 7)):
        assert len({case.kind for case in first if case.suite == name}) == n_kinds
    assert {case.suite for case in first} == set(suites)
    assert all(set(case.outcomes) <= {EXACT} | ALLOWED for case in first)
    log = tmp_path / "damages.jsonl"
    # A process that is killed while it writes a line leaves a part of it.
    log.write_text(log.read_text() + '\n{"suite": "par')
    again = run(tmp_path, 2, ("files",))
    assert again[: len(first)] == first
    assert [case.number for case in again if case.suite == "files"] == [*range(6)]
    assert read_cases(log) == again


def test_the_table_counts_cases_and_refusals() -> None:
    cases = [
        Case("s", 0, "part", [EXACT, EXACT]),
        Case("s", 1, "part", [EXACT, "STORE_DAMAGED", "STORE_DAMAGED"]),
        Case("s", 2, "part", ["STORE_BEHIND", "STORE_DAMAGED"]),
    ]
    assert write_table(cases).splitlines()[2:] == ["| part | 3 | 1 | `STORE_BEHIND` 1, `STORE_DAMAGED` 2 |"]
