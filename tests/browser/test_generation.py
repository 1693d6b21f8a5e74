"""A language model and its int4 variant write on the page, after a prompt that is typed there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser import audit, jupyterlab
from tests.browser.living import keep, living_panel

pytest.importorskip("transformers")
pytestmark = jupyterlab.marks()

OPEN = """
from paifuser_lab.zoo.language import save_tiny_llama

work = lab.load(f"hf:{save_tiny_llama(Path('llama-tiny'))}")
bench = lab.Workbench(work, rounds=1, seconds=0.1)
bench.wait(120)
bench.recipe = lab.Recipe(
    [{"precision": {"default": "int4-weights"}}], limit={"output_error": 9.0}
)
bench.wait(120)
bench
""".strip()
READ = """
state = bench.wait(120)
done = (state.record("generation") or {}).get(state.recipe.digest)
report = {"error": state.error, "texts": done and [row.text for row in done.rows]}
Path("state.json").write_text(json.dumps(report))
""".strip()


def test_both_texts_and_where_they_part_are_seen_after_a_typed_prompt(served: tuple[Any, Any]):
    with living_panel(served, "generation", [OPEN, READ]) as (shown, panel, read):
        panel.get_by_role("tab", name="Generation").click()
        region = panel.get_by_role("region", name="generated text")
        region.get_by_role("textbox", name="prompt").fill("Call me Ishmael")
        keep(shown, "generation-empty")
        region.get_by_role("button", name="Generate").click()
        items = region.locator(".pf-pic-items li")
        items.nth(2).wait_for(timeout=60_000)
        keep(shown, "generation-grows")
        report = read()
        assert report["error"] is None and len(report["texts"]) == 2
        region.get_by_role("heading", name="64 tokens after a prompt of 15").wait_for()
        prompt, first, second = items.all_inner_texts()
        assert prompt == "the prompt Call me Ishmael"
        assert first.startswith("llama-tiny · replay") and "▸" in first
        assert second.startswith("int4-weights · replay") and "▸" in second
        assert region.get_by_role("button", name="Again").is_visible()
        for theme in audit.THEMES:
            audit.dress(shown.page, theme)
            region.scroll_into_view_if_needed()
            keep(shown, f"generation-{theme[-5:].strip()}")
            assert audit.cut_text(region) + audit.faint_text(region) == [], theme
