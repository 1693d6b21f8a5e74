"""`python -m benchmarks fuzz` reads what the tests of damaged files say."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks import fuzz
from benchmarks.fuzz import _row, bench


def row_of(test, inside):
    case = f'<testcase name="test_a_{test}" time="1">{inside}</testcase>'
    return _row(ElementTree.fromstring(case))


def test_a_reader_has_a_row_with_what_failed(monkeypatch):
    monkeypatch.setattr(fuzz, "OPTIONS", (*fuzz.OPTIONS[2:-1], "or_refused and values"))
    record = bench(seconds=1)
    assert {row.reader: row.tried >= 25 for row in record.rows} == {"values.txt": True}
    assert record.is_good and "0 readers failed" in record.summary
    tried = '<properties><property name="tried" value="50"/></properties>'
    saved = row_of("saved_folder_is_loaded_or_refused[recipe.yaml]", tried)
    assert (saved.reader, saved.tried) == ("saved folder: recipe.yaml", 50)
    for tag in ("failure", "error"):
        row = row_of("damaged_file[x.json]", f'<{tag} message="MemoryError"/>')
        failed = record.model_copy(update={"rows": (row,)})
        assert not failed.is_good and "MemoryError" in str(failed)
