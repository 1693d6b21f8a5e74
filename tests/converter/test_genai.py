"""Language models in ONNX Runtime GenAI: the file that is written, and what it computes."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from typing import Any, NamedTuple

import numpy
import pytest
import torch

import paifuser_lab as lab
from paifuser_lab.converter import decoders, genai, named_weights
from paifuser_lab.converter.decoders import DECODERS
from paifuser_lab.converter.genai import GenAIDecoder
from paifuser_lab.errors import ExportError, MeasureError, MissingExtraError
from paifuser_lab.model.formats import Quantized, quantize
from paifuser_lab.zoo.language import save_tiny_llama
from tests.support.models import OnGpu

pytest.importorskip("transformers")
TOKENS = list(range(30, 50))
FORMATS: dict[str, Any] = {
    "fp32": {},
    "int8": {"default": "int8-weights"},
    "int4": {"default": "int4-weights"},
    "mixture": {
        "layers": {
            "model.layers.0.*": "int8-weights",
            "model.layers.1.mlp.*": "int4-weights",
            "model.layers.1.self_attn.q_proj": "int4-weights",
        }
    },
}


class Opened(NamedTuple):
    kind: str
    work: lab.Workload
    model: Any
    path: Any
    decoder: GenAIDecoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_llama(
        tmp_path_factory.mktemp("llama") / "tied",
        max_position_embeddings=128,
        tie_word_embeddings=True,
    )


@pytest.fixture(scope="module")
def work(folder):
    return lab.load(f"hf:{folder}")


@pytest.fixture(scope="module", params=FORMATS)
def opened(request, work, folder, tmp_path_factory):
    pytest.importorskip("onnxruntime_genai")
    kind, parent = request.param, tmp_path_factory.mktemp(request.param)
    work = lab.load(f"hf:{_save_tiny_qwen(folder, parent)}") if kind == "mixture" else work
    formats = FORMATS[kind]
    model = lab.apply(work, lab.Recipe([{"precision": formats}])).model if formats else work.model
    path = parent / GenAIDecoder.file
    GenAIDecoder.write(work, model, path)
    return Opened(kind, work, model, path, GenAIDecoder(path, len(TOKENS), 1))


def _save_tiny_qwen(folder, parent):
    """A model with biases, and with a head of its own."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    copied = shutil.copytree(folder, parent / "qwen")
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "max_position_embeddings": 128}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(Qwen2Config(**sizes, **heads, **ends, tie_word_embeddings=False))
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(weight)
        model.save_pretrained(copied)
    return copied


def logits_of(model):
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0]


def test_its_logits_after_every_token_are_those_of_the_variant(opened):
    opened.decoder.reset()
    logits, own = opened.decoder.feed(TOKENS, every=True), logits_of(opened.model)
    if opened.kind == "fp32":
        torch.testing.assert_close(logits, own, rtol=1e-5, atol=1e-5)
        return
    # products of integers round their inputs to int8
    torch.testing.assert_close(logits, own, rtol=0, atol=0.01 * float(own.abs().max()))
    if opened.kind == "int4":
        rounding = (logits_of(opened.work.model) - own).abs().max()
        assert (logits - own).abs().max() < rounding / 8


@pytest.mark.parametrize("cut", [1, 7])
def test_a_text_in_parts_has_the_logits_of_the_whole_one_also_after_another(opened, cut):
    opened.decoder.reset()
    whole = opened.decoder.feed(TOKENS, every=True)
    opened.decoder.reset()
    parts = [opened.decoder.feed(TOKENS[:cut], every=True)]
    parts += [opened.decoder.feed([token])[None] for token in TOKENS[cut:]]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-5, atol=1e-5)


def test_integers_in_its_file_are_those_of_the_variant(opened):
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(opened.path).graph
    tensors = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    integers = {name: one for name, one in opened.model.named_modules() if hasattr(one, "numbers")}
    products = [node for node in graph.node if node.op_type == "MatMulNBits"]
    shared = {"model.embed_tokens": "lm_head"} if opened.kind in ("int8", "int4") else {}
    assert len(products) == len(integers) - len(shared)
    for node in products:
        bits = next(one.i for one in node.attribute if one.name == "bits")
        packed, scales = tensors[node.input[1]], tensors[node.input[2]]
        if bits == 4:
            packed = numpy.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:2], -1)
        values = (packed.astype(numpy.float32) - 2 ** (bits - 1)) * scales[..., None]
        name = node.input[1].removesuffix(".weight.integers")
        weight = integers[name].weight
        assert numpy.array_equal(values.reshape(weight.shape), weight.numpy()), name
    looked_up = [node for node in graph.node if node.op_type == "GatherBlockQuantized"]
    assert len(looked_up) == len(shared), "an embedding shares the head's integers"
    assert len(set(tensors) & {"lm_head.MatMul.weight", "model.embed_tokens.weight"}) == (
        {"fp32": 1, "mixture": 2}.get(opened.kind, 0)
    )


def test_what_its_file_cannot_hold_is_refused_by_name(work, tmp_path, monkeypatch):
    monkeypatch.setattr(genai, "find_spec", lambda _: True)
    for recipe, sentence in {
        ("prune", "ratio", 0.5): r"layer 'model\.layers\.0.*was cut to",
        ("shorten", "ratio", 0.5): r"layer 'model\.layers\.\d' was left out; files of ONNX",
        ("precision", "default", "int8"): r"layer 'model\.layers\.0\..*none of the formats",
    }.items():
        step, option, value = recipe
        variant = lab.apply(work, lab.Recipe([{step: {option: value}}]))
        with pytest.raises(ExportError, match=sentence):
            GenAIDecoder.write(work, variant.model, tmp_path / "model.onnx")
    monkeypatch.setattr(genai, "BUILD", "raise NotImplementedError('no type of this name')")
    with pytest.raises(ExportError, match=r"does not build .*no type of this name"):
        GenAIDecoder.write(work, work.model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_weights_on_a_gpu_are_copied_for_the_file(work, monkeypatch):
    model = lab.apply(work, lab.Recipe([{"precision": FORMATS["int8"]}])).module

    def on_gpu(weight):
        if isinstance(weight, Quantized):
            return Quantized(OnGpu(weight.values), OnGpu(weight.scales), weight.channel)
        return OnGpu(weight)

    there = [(name, on_gpu(weight), place) for name, weight, place in named_weights._weights(model)]
    monkeypatch.setattr(named_weights, "_weights", lambda model: there)
    for name, weight in named_weights.named_weights(work, model, "files"):
        parts = (weight.values, weight.scales) if isinstance(weight, Quantized) else (weight,)
        assert all(isinstance(part, torch.Tensor) for part in parts), name


def test_a_layer_that_is_no_matrix_of_the_graph_is_refused_by_name(opened):
    before = opened.path.read_bytes()
    other = {"model.other.weight": quantize(torch.randn(64, 64), 8)}
    with pytest.raises(ExportError, match=r"layer 'model\.other' has no matrix of its own"):
        genai._put_integers(opened.path, other)
    assert opened.path.read_bytes() == before


def test_a_file_that_it_does_not_read_is_refused_in_a_sentence(opened, tmp_path):
    shutil.copy(opened.path.with_name("genai_config.json"), tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"nothing of the kind")
    with pytest.raises(MeasureError, match=r"does not read model\.onnx"):
        GenAIDecoder(tmp_path / "model.onnx", 8, 1)


def test_without_its_package_the_sentence_names_the_extra(work, tmp_path, monkeypatch):
    monkeypatch.setattr(genai, "find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", None)
    for call in (
        lambda: GenAIDecoder.write(work, work.model, tmp_path / "model.onnx"),
        lambda: GenAIDecoder(tmp_path / "model.onnx", 8, 1),
    ):
        with pytest.raises(MissingExtraError, match=r"onnxruntime_genai.*paifuser-lab\[language\]"):
            call()
    assert DECODERS["onnxruntime"] is GenAIDecoder


def test_on_other_machines_the_sentence_names_what_runs_there(work, tmp_path, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    for module in (genai, decoders):
        monkeypatch.setattr(module, "find_spec", lambda _: None)
    for package in ("ik_llama_cpp", "onnxruntime_genai"):
        monkeypatch.setitem(sys.modules, package, None)
    opening = [partial(kind, tmp_path / kind.file, 8, 1) for kind in DECODERS.values()]
    writing = partial(GenAIDecoder.write, work, work.model, tmp_path / "model.onnx")
    for call in (*opening, writing):
        with pytest.raises(MeasureError, match="Linux x86-64 alone; use 'torch'") as caught:
            call()
        assert "pip install" not in str(caught.value)
