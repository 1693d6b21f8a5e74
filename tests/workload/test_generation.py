"""Language models: the cache, both phases, a text as data, and files of llama.cpp."""

from __future__ import annotations

from itertools import chain, repeat
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import paifuser_lab as lab
from paifuser_lab.converter import target_of
from paifuser_lab.converter.decoders import DECODERS, LlamaCppDecoder
from paifuser_lab.engines.decoding import ReplayDecoder
from paifuser_lab.errors import (
    DataError,
    ExportError,
    FileError,
    MeasureError,
    UnknownModelError,
    WorkloadError,
)
from paifuser_lab.records import GenerationRow
from paifuser_lab.variant.generation import Contender, Contenders, contending, torch_decoder
from paifuser_lab.variant.speculation import _take_turn
from paifuser_lab.workload.generation import TorchDecoder, greedy, speculative, surprise
from paifuser_lab.zoo.language import save_example_text, save_tiny_llama
from tests.support.models import random_llama

pytest.importorskip("transformers")
INT4, INT8 = "int4-weights", "int8-weights"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_llama(tmp_path_factory.mktemp("llama") / "tiny", max_position_embeddings=128)


@pytest.fixture(scope="module")
def text(folder):
    return save_example_text(folder.parent / "text.txt", 6_000)


@pytest.fixture(scope="module")
def work(folder, text):
    return lab.load(f"hf:{folder}", text=str(text))


@pytest.fixture(scope="module")
def rounded(work):
    return lab.apply(work, lab.Recipe([{"precision": {"default": INT4}}]))


def test_the_cache_generates_what_transformers_generates(work):
    prompt = work.generation(12, 4).prompt
    expected = work.model.generate(torch.tensor([prompt]), max_new_tokens=9, do_sample=False)
    tokens = greedy(TorchDecoder(work.model, 64), prompt, 9)
    assert tokens == expected[0, 12:].tolist()


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_tokens_fed_in_parts_give_the_logits_of_all_at_once(work, cut):
    tokens = work.generation(12, 4).prompt
    decoder = TorchDecoder(work.model, 12)
    whole = decoder.feed(tokens, every=True)
    decoder.reset()
    parts = [decoder.feed(tokens[:cut], every=True), decoder.feed(tokens[cut:], every=True)]
    torch.testing.assert_close(torch.cat(parts), whole)


def test_both_phases_end_with_the_logits_of_the_whole_prompt(work):
    made = work.generation(12, 4)
    whole = work.model(torch.tensor([made.prompt])).logits[0, -1]
    torch.testing.assert_close(made.prefill.output()[0, -1], whole)
    torch.testing.assert_close(made.decode.output()[0, -1], whole)
    assert made.decode.output().equal(made.decode.output()), "a call writes the same row again"


def test_a_recipe_for_decode_has_the_names_of_the_models_layers(work):
    made = work.generation(12, 4)
    layers = {"layers": {"model.layers.0.mlp.up_proj": INT8}}
    for subject in (work, made.prefill, made.decode):
        variant = lab.apply(subject, lab.Recipe([{"precision": layers}]))
        changed = variant.module.get_submodule("model.layers.0.mlp.up_proj")
        assert type(changed).__name__ == "WeightsOnly"
    assert lab.profile(made.decode)["model.layers.0.mlp.up_proj"].total_ms > 0


def test_the_cache_of_a_token_is_counted_by_heads_and_layers(work):
    made = work.generation(12, 4)
    assert made.bytes_per_token == 2 * 2 * 2 * 16 * 4  # k and v, layers, heads, size, bytes
    assert made.cache_bytes() == 16 * made.bytes_per_token
    known = {tensor.data_ptr(): tensor.nbytes for tensor in work.model.state_dict().values()}
    weights = sum(known.values())
    assert made.longest_within(weights + 10 * made.bytes_per_token) == 10
    assert made.longest_within(weights - 1) == 0
    assert made.longest_within(2**40) == 128


def test_a_model_without_one_of_its_blocks_generates_on(work):
    short = lab.apply(work, lab.Recipe([{"shorten": {"ratio": 0.5}}], limit={"metric_drop": 1.0}))
    made = work.generation(12, 4)
    assert short.workload.generation(12, 4).bytes_per_token == made.bytes_per_token // 2
    compared = lab.compare_generation(
        work, short, prompt_tokens=8, new_tokens=4, rounds=2, seconds=5
    )
    assert all(row.decode for row in compared.rows)


def test_a_text_is_train_and_test_data_and_its_metric_counts_next_tokens(work):
    share = work.evaluate()
    right = total = 0
    for inputs, tokens in work.test:
        likely = work.model(**inputs).logits.argmax(-1)
        right += int((likely[:, :-1] == tokens[:, 1:]).sum())
        total += tokens[:, 1:].numel()
    assert share == pytest.approx(right / total)
    inputs, tokens = work.train[0]
    loss, _ = surprise(TorchDecoder(work.model, 128), tokens.tolist())
    assert float(work.loss(work.model(**inputs), tokens).detach()) == pytest.approx(loss, rel=1e-4)


def test_a_comparison_has_speed_perplexity_and_text_of_each(work, rounded, tmp_path):
    done = lab.compare_generation(work, rounded, prompt_tokens=8, new_tokens=4, rounds=2, seconds=5)
    first, second = done.rows
    assert first.agreement == 1 and first.same_tokens == 4
    assert second.size_bytes < first.size_bytes
    assert second.perplexity == pytest.approx(first.perplexity, rel=0.05)
    assert second.perplexity != first.perplexity
    assert done.rounds == 2 and second.decode.tokens_per_s == pytest.approx(1e3 / second.decode.ms)
    judged = sum(tokens.numel() - len(tokens) for _, tokens in work.test)
    assert done.evaluated_tokens == judged, "what it may have learned from does not judge it"
    assert "perplexity" in str(done)
    assert type(done).load(done.save(tmp_path / "done.json")) == done


def test_a_recipe_is_applied_first_and_what_is_no_variant_is_refused(work, rounded):
    wrong = lab.Recipe([{"precision": {"layers": {"nowhere": INT8}}}])
    original, applied, refused = lab.compare_generation(
        work, rounded.recipe, wrong, prompt_tokens=4, new_tokens=2, rounds=1
    ).rows
    assert applied.name == INT4 and applied.decode
    assert applied.size_bytes < original.size_bytes
    assert refused.decode is None and "matches no layer" in refused.failure
    with pytest.raises(MeasureError, match="is a workload, not a variant of one"):
        lab.compare_generation(work, work, prompt_tokens=4, new_tokens=2)


def test_a_variant_that_is_replayed_has_a_row_equal_to_that_in_torch(work, rounded):
    done = lab.compare_generation(
        work, rounded, prompt_tokens=8, new_tokens=6, engines=["torch", "replay"], rounds=1
    )
    assert [row.engine for row in done.rows] == ["torch", "replay"] * 2
    for own, replayed in zip(done.rows[::2], done.rows[1::2], strict=True):
        assert (own.name, own.loss, own.text) == (replayed.name, replayed.loss, replayed.text)
    kinds = [type(torch_decoder("", work.model, 8, name)) for name in ("torch", "replay")]
    assert kinds == [TorchDecoder, ReplayDecoder]


def test_one_engine_or_one_length_may_be_given_plainly(work):
    options = {"prompt_tokens": 4, "new_tokens": 2, "rounds": 1}
    compared = lab.compare_generation(work, engines="replay", **options)
    assert [row.engine for row in compared.rows] == ["torch", "replay"]
    drafts = lab.speculate(work, work, 3, **options)
    assert [row.draft_tokens for row in drafts.rows] == [0, 3]


def test_no_clock_is_read_before_the_device_is_done(work, monkeypatch):
    log = []

    class Logged(TorchDecoder):
        def feed(self, tokens, *, every=False):
            log.append("feed")
            return super().feed(tokens, every=every)

    clock = SimpleNamespace(perf_counter=lambda: log.append("clock") or 0.0)
    for module in ("paifuser_lab.variant.generation", "paifuser_lab.variant.speculation"):
        monkeypatch.setattr(f"{module}.time", clock)
        monkeypatch.setattr(f"{module}.synchronize", lambda device: log.append("wait"))
    decoder, made = Logged(work.model, 8), work.generation(4, 2)
    Contender("net", "torch", decoder, 0).take_turn([1, 2], [3, 4])
    assert log == ["clock", "feed", "wait", "clock", "feed", "wait", "feed", "wait", "clock"]
    expected = greedy(decoder, made.prompt, 2)
    log.clear()
    _take_turn(made, decoder, TorchDecoder(work.model, 8), expected, 0)
    assert log[:3] == ["feed", "wait", "clock"]


@pytest.mark.parametrize("engine", ["llama.cpp", "openvino", "onnxruntime"])
def test_an_engine_computes_what_the_variant_does_from_its_file(work, rounded, text, engine):
    packages = {"llama.cpp": "ik_llama_cpp", "openvino": "openvino_genai"}
    pytest.importorskip(packages.get(engine, "onnxruntime_genai"))
    done = lab.compare_generation(
        work, rounded, prompt_tokens=8, new_tokens=2, engines=[engine], rounds=1
    )
    live = lab.compare_generation(work, rounded, prompt_tokens=8, new_tokens=2, rounds=1)
    rows = {row.name: row for row in done.rows if row.engine == engine}
    assert not any(row.failure for row in done.rows), done
    for row in live.rows:
        assert rows[row.name].loss == pytest.approx(row.loss, abs=2e-3)


class Contrary(TorchDecoder):
    """A draft that guesses the least likely token."""

    def feed(self, tokens, *, every=False):
        return -super().feed(tokens, every=every)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    layers=st.integers(1, 2),
    draft=st.sampled_from(["itself", "another", "contrary"]),
    length=st.integers(0, 6),
    prompt=st.lists(st.integers(0, 22), min_size=1, max_size=9),
    count=st.integers(1, 14),
)
def test_what_a_draft_guesses_never_changes_the_text(seed, layers, draft, length, prompt, count):
    torch.manual_seed(0)
    # in fp64, so that no two logits are as near as rounding
    model = random_llama(seed, layers).double()
    other = random_llama(seed + 1, layers=1).double() if draft == "another" else model
    kind = Contrary if draft == "contrary" else TorchDecoder
    context = len(prompt) + count
    target, guesser = TorchDecoder(model, context), kind(other, context)
    expected = greedy(target, prompt, count)
    target.reset()
    target.feed(prompt)
    done = speculative(target, guesser, prompt, count, length)
    assert done.tokens == expected
    if draft == "itself":
        assert done.accepted == done.drafted and done.calls == -(-count // (length + 1))
    if draft == "contrary" or not length:
        assert done.accepted == 0 and done.calls == count
    assert done.calls + done.accepted == count, "each call adds a token of its own"
    assert done.drafted <= done.calls * length and target.known == context - 1


def test_drafts_are_timed_in_turn_with_greedy_decoding(work, rounded, tmp_path):
    done = lab.speculate(
        work, rounded, [1, 3, 3], prompt_tokens=8, new_tokens=6, rounds=2, seconds=5
    )
    assert [row.draft_tokens for row in done.rows] == [0, 1, 3] and done.rounds == 2
    plain, _, most = done.rows
    assert plain.calls == 6 and plain.acceptance is None and plain.speedup is None
    assert most.acceptance == most.accepted / most.drafted and most.calls == 6 - most.accepted
    assert most.token_ms > 0 and most.interval[0] <= most.speedup <= most.interval[1]
    assert "int4-weights" in done.title and "greedy decoding" in str(done)
    assert done[3] == most and done.table()[2]["tokens a call"] == f"{6 / most.calls:.2f}"
    assert done.quality.is_hopeless in (True, False)
    assert type(done).load(done.save(tmp_path / "done.json")) == done


def test_a_pruned_draft_and_a_variant_as_model_write_the_same_text(work, rounded):
    cut = lab.apply(work, lab.Recipe([{"prune": {"ratio": 0.5}}]))
    done = lab.speculate(rounded, cut, [4], prompt_tokens=8, new_tokens=8, rounds=1)
    assert done.workload.endswith(INT4) and 0 <= done[4].acceptance <= 1
    same = lab.speculate(work, work, [4], prompt_tokens=8, new_tokens=9, rounds=1)
    assert same[4].acceptance == 1 and same[4].calls == 2


def test_a_draft_is_stopped_with_what_was_measured(work, rounded):
    asked = iter([False, True])
    done = lab.speculate(
        work, rounded, [2], prompt_tokens=4, new_tokens=2, should_stop=lambda: next(asked)
    )
    assert done.is_interrupted and done.rounds == 2


def test_drafts_that_do_not_fit_are_refused_in_a_sentence(work, folder, tmp_path):
    def other(**changes):
        return lab.load(f"hf:{save_tiny_llama(tmp_path / 'other', **changes)}")

    with pytest.raises(MeasureError, match="a length of draft=0"):
        lab.speculate(work, work, [2, 0])
    small = lab.Workload(random_llama(0, layers=1, heads=1), torch.tensor([[1, 2]]), name="small")
    with pytest.raises(WorkloadError, match=r"the 23 tokens of small are not the 320 of"):
        lab.speculate(work, small, prompt_tokens=4, new_tokens=2)
    with pytest.raises(WorkloadError, match="no causal language model"):
        lab.speculate(work, lab.Workload(torch.nn.Linear(4, 2), torch.zeros(1, 4)), prompt_tokens=4)
    with pytest.raises(WorkloadError, match=r"a context of 16 tokens"):
        lab.speculate(work, other(max_position_embeddings=16), prompt_tokens=12, new_tokens=8)
    tokenizer = (folder / "tokenizer.json").read_text()
    changed = other()
    (tmp_path / "other" / "tokenizer.json").write_text(
        tokenizer.replace('"!": 1,', '"!": 2,').replace('"\\"": 2,', '"\\"": 1,')
    )
    with pytest.raises(WorkloadError, match=r"the 320 tokens of .* are not the 320"):
        lab.speculate(work, changed, prompt_tokens=4, new_tokens=2)
    engine = lab.apply(work, lab.Recipe([{"backend": "onnxruntime"}]))
    with pytest.raises(MeasureError, match=r"ONNX Runtime as a file without a cache"):
        lab.speculate(work, engine, prompt_tokens=4, new_tokens=2)
    compared = lab.compare_generation(work, engine, prompt_tokens=4, new_tokens=2, rounds=1)
    assert "without a cache" in compared.rows[1].failure


def test_a_text_that_parts_from_greedy_decoding_is_an_error(work, rounded, monkeypatch):
    def parted(*given):
        text = speculative(*given)
        return text._replace(tokens=[*text.tokens[:2], 7, *text.tokens[3:]])

    monkeypatch.setattr("paifuser_lab.variant.speculation.speculative", parted)
    said = r'as token 3 with a draft of \d tokens .* apply {"precision": "fp32"} to it first'
    with pytest.raises(MeasureError, match=said):
        lab.speculate(work, rounded, prompt_tokens=4, new_tokens=4, rounds=1)


def test_a_gguf_file_loads_as_the_model_that_it_was_written_of(work, tmp_path):
    pytest.importorskip("gguf")
    report = lab.export(work, "gguf", tmp_path / "tiny.gguf", seconds=0)
    again = lab.load(str(tmp_path / "tiny.gguf"))
    for name, weight in work.model.state_dict().items():
        torch.testing.assert_close(again.model.state_dict()[name], weight, msg=name)
    sentence = "The quick cat waits 40 times.\n"
    assert again.tokenizer(sentence)["input_ids"] == work.tokenizer(sentence)["input_ids"]
    assert not again.notes and report.precision == "fp32"


def test_integers_in_a_file_are_those_of_the_variant(work, rounded, tmp_path):
    gguf = pytest.importorskip("gguf")
    lab.export(rounded, "gguf", tmp_path / "tiny.gguf", seconds=0)
    tensors = {t.name: t for t in gguf.GGUFReader(tmp_path / "tiny.gguf").tensors}
    stored = tensors["blk.1.ffn_up.weight"]
    live = rounded.module.get_submodule("model.layers.1.mlp.up_proj").weight
    read = torch.from_numpy(gguf.dequantize(stored.data, stored.tensor_type))
    torch.testing.assert_close(read, live, rtol=1e-3, atol=1e-5)  # scales are in fp16
    assert stored.tensor_type.name == "Q4_0"
    assert "Q4_0" in lab.load(str(tmp_path / "tiny.gguf")).notes[0]
    mine = lab.load(rounded.save(tmp_path / "mine"))
    lab.export(mine, "gguf", tmp_path / "mine.gguf", seconds=0)
    again = {t.name: t.data.tobytes() for t in gguf.GGUFReader(tmp_path / "mine.gguf").tensors}
    assert again == {name: tensor.data.tobytes() for name, tensor in tensors.items()}


def test_a_shared_embedding_is_in_a_file_once_with_the_integers_of_the_variant(tmp_path):
    gguf = pytest.importorskip("gguf")
    work = lab.load(f"hf:{save_tiny_llama(tmp_path / 'tied', tie_word_embeddings=True)}")
    rounded = lab.apply(work, lab.Recipe([{"precision": {"default": "int8-weights"}}]))
    lab.export(rounded, "gguf", tmp_path / "tied.gguf", seconds=0)
    tensors = {t.name: t for t in gguf.GGUFReader(tmp_path / "tied.gguf").tensors}
    assert "output.weight" not in tensors
    stored = tensors["token_embd.weight"]
    assert stored.tensor_type.name == "Q8_0"
    read = torch.from_numpy(gguf.dequantize(stored.data, stored.tensor_type))
    live = rounded.module.lm_head.weight
    torch.testing.assert_close(read, live, rtol=1e-3, atol=1e-5)  # scales are in fp16


def test_wrong_subjects_and_lengths_are_refused_in_a_sentence(work, folder, text, tmp_path):
    with pytest.raises(WorkloadError, match="no causal language model"):
        lab.Workload(torch.nn.Linear(4, 2), torch.zeros(1, 4)).generation()
    with pytest.raises(WorkloadError, match="128 tokens"):
        work.generation(100, 29)
    with pytest.raises(WorkloadError, match="new_tokens=0"):
        work.generation(4, 0)
    with pytest.raises(MeasureError, match=r"llama.cpp, openvino"):
        lab.compare_generation(work, engines=["vllm"], prompt_tokens=8, new_tokens=2)
    (tmp_path / "short.txt").write_text("A few words.")
    with pytest.raises(DataError, match=r"1,024"):
        lab.load(f"hf:{folder}", text=str(tmp_path / "short.txt"))
    with pytest.raises(WorkloadError, match="'size'"):
        lab.load(f"hf:{folder}", size=2)


def test_lengths_of_a_prompt_share_files_and_evaluation_but_no_rounds(work, monkeypatch):
    judged = []
    counted = lambda decoder, windows: judged.append(decoder) or surprise(decoder, windows)
    monkeypatch.setattr("paifuser_lab.variant.generation.surprise", counted)
    with contending(work, [], ["torch"], 16) as contenders:
        short = contenders.compare(work.generation(4, 2), rounds=2)
        long = contenders.compare(work.generation(8, 3), rounds=1)
    assert (short.prompt_tokens, long.prompt_tokens, short.rounds, long.rounds) == (4, 8, 2, 1)
    assert len(judged) == 1 and short.rows[0].loss == long.rows[0].loss is not None


def test_a_file_is_written_of_the_layers_and_not_of_the_engine_around_them(work, monkeypatch):
    written = []

    class Filed:
        file, write = "model.file", staticmethod(lambda work, module, path: written.append(module))

        def __init__(self, path, context, threads):
            raise MeasureError("it only writes")

    monkeypatch.setitem(DECODERS, "filed", Filed)
    variant = lab.apply(work, lab.Recipe([{"backend": {"name": "eager", "threads": 1}}]))
    assert variant.model is not variant.module
    with contending(work, [variant], ["filed"], 8) as contenders:
        assert [row.failure for row in contenders.failed] == ["it only writes"] * 2
    assert len(written) == 2 and written[0] is work.model and written[1] is variant.module


def test_where_nothing_is_ready_the_first_refusal_is_raised(work):
    failed = [GenerationRow(name="net", engine="torch", threads=1, failure="no cache here")]
    with pytest.raises(MeasureError, match="no cache here"):
        Contenders([], [], failed).compare(work.generation(4, 2))


def test_a_stop_while_the_text_is_judged_keeps_the_timings(work, rounded, monkeypatch):
    polled = chain([False, False], repeat(True))
    options = {"prompt_tokens": 8, "new_tokens": 4, "rounds": 2, "seconds": 5}
    stopped = lab.compare_generation(work, rounded, should_stop=lambda: next(polled), **options)

    def pressed(decoder, windows):
        raise KeyboardInterrupt

    monkeypatch.setattr("paifuser_lab.variant.generation.surprise", pressed)
    interrupted = lab.compare_generation(work, rounded, **options)
    for done in (stopped, interrupted):
        assert done.title.endswith("stopped early")
        assert done.rounds == 2 and done.evaluated_tokens == 0
        assert all(row.decode and row.loss is None for row in done.rows)
        assert done.rows[0].same_tokens == 4


def test_a_file_of_llama_cpp_is_opened_once_for_all_calls_of_a_length(work, tmp_path, monkeypatch):
    pytest.importorskip("ik_llama_cpp")
    lab.export(work, "gguf", tmp_path / "model.gguf", seconds=0)
    opened, asked = [], []

    class Counted(LlamaCppDecoder):
        def __init__(self, path, context, threads):
            opened.append(context)
            super().__init__(path, context, threads)

    monkeypatch.setattr("paifuser_lab.converter.gguf.LlamaCppDecoder", Counted)
    monkeypatch.setattr("cpuinfo.get_cpu_info", lambda: asked.append(1) or {})
    run = target_of("gguf").opened(tmp_path / "model.gguf", 1)
    ids = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    first, again = run([ids]), run([ids])
    assert torch.equal(first[0], again[0]) and opened == [5]
    torch.testing.assert_close(run([ids[:, :3]])[0], first[0][:, :3], rtol=1e-2, atol=1e-3)
    assert opened == [5, 3] and not asked  # of the processor, since the export opened one


def test_what_a_gguf_file_would_not_say_is_refused_by_name(work, tmp_path):
    pytest.importorskip("gguf")
    cut = lab.apply(work, lab.Recipe([{"prune": {"ratio": 0.5}}]))
    with pytest.raises(ExportError, match=r"was cut to"):
        lab.export(cut, "gguf", tmp_path / "cut.gguf", seconds=0)
    for what, change in {
        "scaled positions": {
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
        },
        "biases": {"attention_bias": True},
        "heads": {"head_dim": 32},
        "activation": {"hidden_act": "gelu"},
    }.items():
        other = lab.load(f"hf:{save_tiny_llama(tmp_path / what, **change)}")
        with pytest.raises(ExportError, match=what):
            lab.export(other, "gguf", tmp_path / "other.gguf", seconds=0)
    assert not list(tmp_path.glob("*.gguf"))


def test_a_text_given_as_a_path_is_named_where_the_model_is_loaded_again(folder, text):
    work = lab.load(f"hf:{folder}", text=text)
    assert work.loaded_as == f"hf:{folder}" and work.origin.options == {"text": str(text)}


def test_a_saved_model_with_a_text_is_loaded_anywhere_without_trust(
    folder, text, tmp_path, monkeypatch
):
    monkeypatch.chdir(text.parent)
    work = lab.load(f"hf:{folder}", text=text.name)
    saved = lab.apply(work, lab.Recipe([])).save(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    loaded = lab.load(saved)
    assert torch.equal(loaded.test[0][1], work.test[0][1])
    assert torch.equal(loaded.output().logits, work.output().logits)


def test_a_folder_without_a_tokenizer_loads_and_says_so_when_text_is_given(folder, text, tmp_path):
    bare = save_tiny_llama(tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    assert lab.load(f"hf:{bare}").generation(4, 2).readable([1, 2]) == "1 2"
    with pytest.raises(WorkloadError, match="no tokenizer"):
        lab.load(f"hf:{bare}", text=str(text))


def test_a_damaged_file_of_llama_cpp_is_refused_before_it_is_read(work, tmp_path):
    pytest.importorskip("gguf")
    lab.export(work, "gguf", tmp_path / "tiny.gguf", seconds=0)
    whole = (tmp_path / "tiny.gguf").read_bytes()
    for content in (whole[: len(whole) // 2], whole[:200], b"GGUF", b"nothing of the kind"):
        (tmp_path / "cut.gguf").write_bytes(content)
        with pytest.raises(FileError, match=r"cut\.gguf"):
            lab.load(str(tmp_path / "cut.gguf"))


def test_a_model_larger_than_the_memory_is_refused_before_it_is_loaded(work, tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    lab.export(work, "gguf", tmp_path / "tiny.gguf", seconds=0)
    memory = type("Memory", (), {"available": 1000, "total": 1 << 40})
    for name, found in (
        ("psutil.virtual_memory", lambda: memory),
        ("paifuser_lab.machine.host._memory_limits", lambda root: [1 << 20]),  # of a container
    ):
        with monkeypatch.context() as patched:
            patched.setattr(name, found)
            with pytest.raises(FileError, match="memory"):
                lab.load(str(tmp_path / "tiny.gguf"))


def test_another_architecture_is_no_gguf_file(tmp_path):
    pytest.importorskip("gguf")
    work = lab.load("hf:gpt2", n_layer=1, n_embd=32, n_head=2, vocab_size=64)
    with pytest.raises(ExportError, match="gpt2"):
        lab.export(work, "gguf", tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()
    with pytest.raises(UnknownModelError):
        lab.load("hf:no-such-type")
