"""`benchmarks language` on a tiny Llama: a row a format, and the page shows them."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks import language
from benchmarks.language import DRAFTS, FORMATS, bench
from benchmarks.measured import Records
from benchmarks.pages import block
from paifuser_lab.records import Record
from paifuser_lab.zoo.language import save_example_text, save_tiny_llama

pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def short_text(monkeypatch):
    """Models are judged by a tenth of the usual text."""
    brief = partial(save_example_text, characters=6_000)
    monkeypatch.setattr(language, "save_example_text", brief)


def test_a_model_of_random_weights_has_no_mixture_and_no_drafts(monkeypatch):
    monkeypatch.setattr(language, "BILLION", {})
    monkeypatch.setattr(language, "FORMATS", FORMATS[:1])
    measured = language.bench([8], model="llama-1b", new_tokens=2, engines="torch", seconds=0.1)
    assert len(measured.comparisons[0].rows) == 2
    assert not measured.speculations and not measured.failures and not measured.mixed


def test_each_format_is_generated_with_and_a_prompt_past_the_context_is_named(tmp_path):
    folder = save_tiny_llama(tmp_path / "llama")
    measured = bench([8, 4096], model=f"hf:{folder}", new_tokens=2, engines="torch", seconds=0.1)
    (compared,) = measured.comparisons
    names = [row.name for row in compared.rows]
    assert len(names) == 2 + len(FORMATS) and "4,096" in measured.failures["4096"]
    assert Record.load(measured.save(tmp_path / "language.json")) == measured
    page = block("language", Records(tmp_path))
    assert names[-1] == measured.mixed
    shown = [*names[:-1], "int8 and int4, mixed"]
    assert all(f"| 8 | {name} | torch |" in page for name in shown) and "4,096" in page
    sizes = {row.name: row.size_bytes for row in compared.rows}
    assert sizes["int4-weights"] < sizes[measured.mixed] < sizes["int8-weights"]
    assert [one.draft.split(" · ")[-1] for one in measured.speculations] == list(DRAFTS)
    assert all(f"| 8 | drafts of 4 by {name} | replay |" in page for name in DRAFTS)
    assert page.count("accepted · ") == 3 * len(DRAFTS) and measured.speculations[0].rounds >= 2
