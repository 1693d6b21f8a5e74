"""The widgets' benchmark runs through in a real JupyterLab; how fast anything is is never
asserted.
"""

from __future__ import annotations

from benchmarks.widgets import bench
from tests.browser import jupyterlab

pytestmark = jupyterlab.marks()


def test_a_panel_is_created_painted_clicked_and_selected_from_python():
    measured = bench((20,), clicks=4)
    (row,) = measured.rows
    assert row.rows == 21 and row.create_ms > 0 and row.paint_ms > 0
    assert row.received_bytes > row.widget_bytes > row.data_bytes > 0, (
        "what came over the wire holds data, code and style"
    )
    for middle, high in (row.click_to_python_ms, row.python_to_paint_ms):
        assert 0 < middle <= high
    assert measured.table()[0]["rows"] == "21"
