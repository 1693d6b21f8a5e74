"""The section of generated text: what is asked, what grows, and what is kept."""

from __future__ import annotations

import pytest

import paifuser_lab as lab
from paifuser_lab.errors import StoppedError, WorkloadError
from paifuser_lab.variant import live_generation
from paifuser_lab.variant.generation import text_of
from paifuser_lab.variant.live_generation import generate_in_turns
from paifuser_lab.views.generation import PARTS, picture
from paifuser_lab.widgets.section import of_recipe
from paifuser_lab.widgets.tabs.generation import SECTION
from paifuser_lab.workload.generation import TorchDecoder, greedy
from paifuser_lab.zoo.language import save_tiny_llama
from tests.support.bench import TIMEOUT_S, opened, send
from tests.support.models import Small, images

pytest.importorskip("transformers")
INT4 = {"precision": {"default": "int4-weights"}}
RECIPE = lab.Recipe([INT4], limit={"output_error": 9.0})


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = save_tiny_llama(tmp_path_factory.mktemp("llama") / "tiny", max_position_embeddings=80)
    return lab.load(f"hf:{folder}")


@pytest.fixture(scope="module")
def variant(work):
    return lab.apply(work, RECIPE)


@pytest.fixture(autouse=True)
def every_round(monkeypatch):
    monkeypatch.setattr(live_generation, "EVERY_S", -1.0)


def written_by(model, prompt, count):
    return greedy(TorchDecoder(model, len(prompt) + count), prompt, count)


def test_each_writes_the_text_of_greedy_decoding_after_the_same_prompt(work, variant):
    *_, done = generate_in_turns(work, variant)
    made = work.generation(done.prompt_tokens, done.new_tokens)
    assert (done.prompt_tokens, done.new_tokens) == (40, 40), "within the context of 80"
    assert done.prompt == made.readable(made.prompt)
    texts = [written_by(one, made.prompt, 40) for one in (work.model, variant.model)]
    assert [row.text for row in done.rows] == [made.readable(text) for text in texts]
    assert [row.engine for row in done.rows] == ["replay", "replay"]
    same = next(at for at, (a, b) in enumerate(zip(*texts, strict=True)) if a != b)
    assert done.rows[1].same_tokens == same
    assert done.rows[1].parts_at == len(made.readable(texts[1][:same]))


def test_both_texts_grow_together_and_their_rates_are_of_the_same_rounds(work, variant):
    grown = list(generate_in_turns(work, variant))
    counts = [one.new_tokens for one in grown]
    assert counts == [*range(9, 41, 4), 40, 40] and grown[-1].rounds == 9
    made = work.generation(40, 40)
    whole = written_by(variant.model, made.prompt, 40)
    for one in grown:
        assert one.rows[1].text == made.readable(whole[: one.new_tokens])
    first, second = grown[-1].rows
    assert [at for at, _ in first.pace] == [40 + count for count in counts[:-1]]
    assert first.pace != second.pace and second.decode.interval is not None
    assert "→" in grown[-1].table()[1]["first → last third"]


def test_a_stop_keeps_what_is_written_and_before_it_there_is_nothing_to_keep(work, variant):
    seen = []
    for one in generate_in_turns(work, variant, should_stop=lambda: len(seen) >= 2):
        seen.append(one)
    assert seen[-1].is_interrupted and 9 < seen[-1].new_tokens < 40
    whole = written_by(variant.model, work.generation(40, 40).prompt, 40)
    assert seen[-1].rows[1].text == work.generation(1, 1).readable(whole[: seen[-1].new_tokens])
    with pytest.raises(StoppedError):
        next(generate_in_turns(work, variant, should_stop=lambda: True))


def test_a_typed_prompt_is_read_in_place_of_the_models_own(work):
    *_, done = generate_in_turns(work, prompt="this is it")
    tokens = work.tokenizer("this is it")["input_ids"]
    made = work.generation(len(tokens), 64)
    assert (done.prompt, done.prompt_tokens, done.new_tokens) == ("this is it", 9, 64)
    assert done.rows[0].text == made.readable(written_by(work.model, tokens, 64))
    with pytest.raises(WorkloadError, match="context of 80"):
        next(generate_in_turns(work, prompt="x" * 80))


def test_the_button_shows_both_texts_and_the_place_where_they_part(work, tmp_path):
    with opened(work, tmp_path) as bench:
        assert "generation" not in bench.state["absent"] and "generation" not in bench.views
        bench.recipe = RECIPE
        bench.wait(TIMEOUT_S)
        seen = []
        bench.session.observe(lambda state: seen.append(of_recipe(state, "generation")))
        state = send(bench, do="generation", prompt="")
        done = of_recipe(state, "generation")
        assert state.error is None and len({one.new_tokens for one in seen if one}) > 3
        assert [row.name for row in done.rows] == ["tiny", "int4-weights"]
        (_, prompt), *texts = bench.views["generation"]["items"]
        assert prompt == done.prompt and [PARTS in text for _, text in texts] == [True, True]
        bench.recipe = lab.Recipe([])
        bench.wait(TIMEOUT_S)
        assert "generation" not in bench.views, "it is of another recipe"


def test_a_stopped_generation_stays_in_the_workbench(work, tmp_path):
    with opened(work, tmp_path) as bench:
        stops = iter([lambda: bench.session.stop("generation")])
        bench.session.observe(lambda state: of_recipe(state, "generation") and next(stops, bool)())
        state = send(bench, do="generation")
        assert state.error is None and of_recipe(state, "generation").is_interrupted
        assert bench.views["generation"]["items"]


def test_a_backend_is_left_out_since_it_has_no_cache(work, tmp_path):
    with opened(work, tmp_path) as bench:
        bench.session._history.push(lab.Recipe([INT4, {"backend": {"name": "onnxruntime"}}]))
        state = send(bench, do="generation")
        (done,) = state.record("generation").values()
        assert [row.name for row in done.rows] == ["tiny", "int4-weights"]


def test_a_model_that_writes_no_text_has_no_such_section(tmp_path):
    with opened(lab.Workload(Small(), images(), name="small"), tmp_path) as bench:
        assert bench.state["absent"][SECTION.name] == "this model writes no text"
        assert "generates no text" in send(bench, do="generation").error


def test_a_text_that_was_interrupted_parts_nowhere_in_what_it_shares(work):
    made = work.generation(1, 1)
    for tokens, first in (([5, 6], [5, 6, 7]), ([5, 6, 7], [5, 6])):
        assert text_of(made, tokens, first)["parts_at"] is None
    assert text_of(made, [5, 8], [5, 6, 7])["same_tokens"] == 1


def test_equal_texts_are_listed_for_each_without_a_mark(work):
    *_, done = generate_in_turns(work, lab.apply(work, lab.Recipe(["fold"])))
    (_, first), (_, second) = picture(done).items[1:]
    assert first == second == done.rows[0].text
