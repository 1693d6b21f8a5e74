"""`python -m benchmarks fuzz` reads what the tests of damaged files say."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks import fuzz
from benchmarks.fuzz import _row, bench


def test_a_reader_has_a_row_with_what_failed(monkeypatch):
    chosen = "or_refused and (recipe or values)"
    monkeypatch.setattr(fuzz, "OPTIONS", (*fuzz.OPTIONS[2:-1], chosen))
    record = bench(seconds=1)
    readers = [row.reader for row in record.rows]
    assert {"recipe.yaml", "saved folder: recipe.yaml"} < set(readers)
    assert len(set(readers)) == len(readers)
    tried = {row.reader: row.tried for row in record.rows}
    assert min(tried.values()) >= 25 and tried["values.txt"] > 25
    assert record.is_good and "0 readers failed" in record.summary
    for tag in ("failure", "error"):
        case = f'<testcase name="test_a[x.json]" time="1"><{tag} message="MemoryError"/></testcase>'
        row = _row(ElementTree.fromstring(case))
        failed = record.model_copy(update={"rows": (row,)})
        assert not failed.is_good and "MemoryError" in str(failed)
