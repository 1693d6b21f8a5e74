"""Folders of transformers' checkpoints as workloads."""

from __future__ import annotations

import json
import socket

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab.errors import WorkloadError

transformers = pytest.importorskip("transformers")


def bert(folder):
    config = transformers.BertConfig(
        vocab_size=120, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, num_labels=3,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(folder)
    return model


def vit(folder):
    config = transformers.ViTConfig(
        image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=3,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(folder)
    return model


def resnet_in_bf16(folder):
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic", num_labels=3,
    )  # fmt: skip
    model = transformers.ResNetForImageClassification(config).bfloat16().eval()
    model.save_pretrained(folder)
    return model


def gpt2(folder):
    config = transformers.GPT2Config(
        vocab_size=120, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("make", [bert, vit, resnet_in_bf16, gpt2])
def test_a_folder_loads_with_its_head_and_weights_and_without_a_network(
    make, tmp_path, monkeypatch
):
    original = make(tmp_path / "net")

    def connect(*args, **kwargs):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", connect)
    work = lab.load(f"hf:{tmp_path / 'net'}", batch=2)
    assert type(work.model) is type(original)
    with torch.no_grad():
        right = original(**work.inputs.kwargs).logits
        assert torch.equal(work.model(**work.inputs.kwargs).logits, right)
    assert len(right) == 2


def edited(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"auto_map": {"AutoModel": "evil.Model"}}, "names code in 'auto_map'"),
        ({"sub": {"auto_map": {}}}, "names code"),
        ({"attn_implementation": "someone/kernel"}, "names code"),
        ({"architectures": ["os"]}, "does not have"),
        ({"architectures": ["GPT2LMHeadModel"]}, "does not have"),
        ({"quantization_config": {}}, "quantized"),
    ],
)
def test_a_config_that_names_code_or_no_known_model_is_refused(changes, match, tmp_path):
    bert(tmp_path)
    edited(tmp_path, **changes)
    with pytest.raises(lab.PaifuserError, match=match):
        lab.load(f"hf:{tmp_path}")


def test_pickled_weights_are_refused_and_not_opened(tmp_path):
    bert(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nabort\n(tR.")
    with pytest.raises(lab.PaifuserError, match=r"pytorch_model\.bin', a pickle.*save_pretrained"):
        lab.load(f"hf:{tmp_path}")


def test_missing_weights_and_links_out_of_the_folder_are_refused(tmp_path):
    bert(tmp_path / "a")
    edited(tmp_path / "a", num_hidden_layers=2)
    with pytest.raises(lab.PaifuserError, match="has no weights for"):
        lab.load(f"hf:{tmp_path / 'a'}")
    vit(tmp_path / "b")
    weights = tmp_path / "b" / "model.safetensors"
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(lab.PaifuserError, match="leads out of its folder"):
        lab.load(f"hf:{tmp_path / 'b'}")


@pytest.mark.parametrize(
    ("place", "name"),
    [("a/my-gpt", "my-gpt"), ("models--who--my-gpt/snapshots/c0ffee", "my-gpt")],
    ids=["a folder", "a cache of the hub"],
)
def test_a_model_is_shown_by_its_folders_name_and_loaded_again_by_its_path(place, name, tmp_path):
    gpt2(tmp_path / place)
    work = lab.load(f"hf:{tmp_path / place}")
    assert (work.name, work.loaded_as) == (name, f"hf:{tmp_path / place}")
    saved = lab.apply(work, lab.Recipe(["fold"])).save(tmp_path / "saved")
    assert lab.Recipe.load(saved / "recipe.yaml").workload == work.loaded_as
    again = lab.load(saved)
    assert again.name.startswith(f"{name} · ")
    assert torch.equal(again.output().logits, work.output().logits)


def test_a_folder_is_named_though_its_path_is_a_dot(tmp_path, monkeypatch):
    gpt2(tmp_path / "my-gpt")
    monkeypatch.chdir(tmp_path / "my-gpt")
    assert lab.load("hf:.").name == "my-gpt"


def test_a_text_is_refused_by_a_config_and_by_a_model_that_writes_none(tmp_path):
    with pytest.raises(WorkloadError, match=r"There is no folder 'gpt2' .* has no tokenizer"):
        lab.load("hf:gpt2", text="a.txt")
    vit(tmp_path / "net")
    with pytest.raises(WorkloadError, match="generates no text; leave the option text out"):
        lab.load(f"hf:{tmp_path / 'net'}", text="a.txt")
