"""Programs of torch.export as workloads: loaded where trusted, and equal to the program."""

from __future__ import annotations

import os
import pickle
import warnings
import zipfile

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab.workload import running


class Block(nn.Module):
    """A small GPT: causal attention, an open length, and a head tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 16), nn.Embedding(32, 16)
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        q, k, v = (
            part.unflatten(-1, (2, 8)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        return {"logits": self.head(x), "hidden": (x,)}


def exported(path, model, inputs, dynamic=None, kwargs=None):
    with running(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model.eval(), inputs, kwargs, dynamic_shapes=dynamic)
        torch.export.save(program, path)
    return program


@pytest.mark.parametrize("name", ["resnet18-tiny", "vit-s-tiny"])
def test_a_program_of_a_zoo_model_gives_the_same_outputs_and_layers(name, tmp_path):
    original = lab.load(name)
    program = exported(tmp_path / "net.pt2", original.model, tuple(original.inputs.tensors))
    work = lab.load(tmp_path / "net.pt2", trust=True)
    assert work.name == "net"
    inputs = original.inputs.tensors
    with running(work.model):
        answer, right = work.model(*inputs), program.module()(*inputs)
    assert torch.equal(answer, right)
    weights = dict(original.model.named_parameters())
    own = dict(work.model.named_parameters())
    assert own.keys() == weights.keys()
    assert all(torch.equal(own[key], weights[key]) for key in own)


def test_a_small_gpt_keeps_its_open_sizes_ties_and_outputs(tmp_path):
    torch.manual_seed(0)
    model = Block()
    sizes = {"tokens": {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=32)}}
    tokens = torch.randint(50, (2, 7))
    exported(tmp_path / "gpt.pt2", model, (tokens,), sizes)
    work = lab.load(tmp_path / "gpt.pt2", batch=3, trust=True)
    assert work.inputs.tensors[0].shape == (3, 7) and int(work.inputs.tensors[0].max()) < 50
    for batch, rows in ((None, 2), (1, 1)):
        again = lab.load(tmp_path / "gpt.pt2", batch=batch, trust=True)
        assert again.inputs.tensors[0].shape == (rows, 7)
    assert work.model.tokens.weight is work.model.head.weight
    for shape in ((2, 7), (5, 11)):
        other = torch.randint(50, shape)
        with running(model), running(work.model):
            right, answer = model(other), work.model(other)
        assert torch.equal(answer["logits"], right["logits"])
        assert torch.equal(answer["hidden"][0], right["hidden"][0])


class Net(nn.Module):
    """Layers, in-place operators, a weight that is read twice, two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.relu, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.5)
        self.fc = nn.Linear(4, 2)
        self.register_buffer("scale", torch.tensor([2.0, 3.0]))

    def forward(self, images, mask=None):
        x = self.relu(self.norm(self.conv(images)))
        x += 1.0
        x = self.drop(F.max_pool2d(x, 2)).mean((2, 3))
        x = self.fc(x) + self.fc.weight.mean()  # a weight that a layer and an operator read
        return x * self.scale * (1.0 if mask is None else mask)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("pt2") / "net.pt2"
    images, mask = torch.randn(2, 3, 8, 8), torch.ones(2, 1)
    return path, exported(path, Net(), (images,), kwargs={"mask": mask})


def test_layers_buffers_and_in_place_operators_come_back_and_can_be_changed(net):
    path, program = net
    work = lab.load(path, trust=True)
    layers = dict(work.model.named_modules())
    assert isinstance(layers["conv"], nn.Conv2d) and isinstance(layers["norm"], nn.BatchNorm2d)
    assert isinstance(layers["fc"], nn.Linear) and isinstance(layers["relu"], nn.ReLU)
    assert "scale" in dict(work.model.named_buffers()) and "mask" in work.inputs.kwargs
    assert len(list(work.model.parameters())) == len(list(Net().parameters()))
    images = torch.randn(2, 3, 8, 8)
    given = images.clone()
    with running(work.model):
        answer = work.model(images=images, mask=torch.full((2, 1), 2.0))
    assert torch.equal(answer, program.module()(given, mask=torch.full((2, 1), 2.0)))
    assert torch.equal(images, given)
    variant = lab.apply(work, lab.Recipe(["fold", {"precision": "int8"}]))
    assert isinstance(variant.module.norm, nn.Identity)
    assert variant.module.conv.format == "int8"
    assert type(variant.module.fc) is nn.Linear  # its weight is read by an operator, too


def test_inputs_are_given_by_name_and_wrong_ones_are_refused(net):
    path, _ = net
    mask, images = torch.zeros(2, 1), torch.ones(2, 3, 8, 8)
    work = lab.load(path, inputs={"mask": mask, "images": images}, trust=True)
    assert torch.equal(work.inputs.kwargs["mask"], mask)
    for wrong, match in (
        ({"x": mask}, "reads 'images', 'mask'"),
        (mask, "Tensor; give a dict"),
        ({"mask": mask, "images": [1]}, "'images' is a list"),
    ):
        with pytest.raises(lab.PaifuserError, match=match):
            lab.load(path, inputs=wrong, trust=True)
    for batch in (1, 5):  # it was captured at 2
        with pytest.raises(lab.PaifuserError, match="fixed to the sizes"):
            lab.load(path, batch=batch, trust=True)
    with pytest.raises(lab.PaifuserError, match="no option 'heads'"):
        lab.load(path, heads=2, trust=True)


def refused(path, match, **options):
    with pytest.raises(lab.PaifuserError, match=match) as caught:
        lab.load(path, **options)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 700


class Runs:
    """Creates a folder when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def with_pickle(path, target, thing):
    """A copy of a program whose example inputs are the pickle of a thing."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if "/sample_inputs/" in name:
                content = pickle.dumps(thing)
            new.writestr(name, content)
    return target


def test_a_program_is_not_unpickled_without_trust(net, tmp_path):
    bad = with_pickle(net[0], tmp_path / "bad.pt2", Runs(tmp_path / "made"))
    refused(bad, r"bad.pt2 is read by torch.export.load, which unpickles .* trust=True .*--trust")
    assert not (tmp_path / "made").exists()
    refused(tmp_path / "missing.pt2", "no program")
    refused(tmp_path / "missing.pt2", "no program", trust=True)


def test_a_saved_folder_finds_a_program_that_was_trusted_and_asks_for_trust_in_another_process(
    net, tmp_path, monkeypatch
):
    path = tmp_path / "net.pt2"
    path.write_bytes(net[0].read_bytes())
    work = lab.load(path, trust=True)
    lab.apply(work, lab.Recipe([{"precision": "bf16"}])).save(tmp_path / "mine")
    assert lab.load(tmp_path / "mine").name == "net · bf16"
    monkeypatch.setattr("paifuser_lab.variant.trust._trusted_programs", set())
    refused(tmp_path / "mine", r"torch.export.load, which unpickles .* trust=True")
    with_pickle(net[0], path, Runs(tmp_path / "made"))  # in its place
    refused(tmp_path / "mine", "holds something else", trust=True)
    assert not (tmp_path / "made").exists()
    path.write_bytes(net[0].read_bytes())
    assert lab.load(tmp_path / "mine", trust=True).name == "net · bf16"


def test_what_is_no_program_of_torch_is_refused_in_a_sentence(net, tmp_path):
    content = net[0].read_bytes()
    for name, wrong in (("a", b"PK" + bytes(200)), ("b", b""), ("c", content[: len(content) // 2])):
        (tmp_path / f"{name}.pt2").write_bytes(wrong)
        refused(tmp_path / f"{name}.pt2", "not a sound program", trust=True)
    with zipfile.ZipFile(tmp_path / "d.pt2", "w") as file:
        file.writestr("d/data/aotinductor/model/a.so", b"")
    refused(tmp_path / "d.pt2", "compiled code", trust=True)


class Writes(nn.Module):
    """Writes into a part of a tensor that is read again."""

    def forward(self, x):
        y = x * 2
        y[:, 0] = 0.0
        return y + 1


class Counts(nn.Module):
    """Changes a buffer in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return x + self.calls


class CountsInPart(Counts):
    """Changes a part of a buffer in its forward."""

    def forward(self, x):
        self.calls[:1].mul_(0.5)
        return x


class Input(nn.Module):
    """Changes its input."""

    def forward(self, x):
        return x.add_(1)


@pytest.mark.parametrize("model", [Counts(), CountsInPart(), Input()])
def test_a_program_that_changes_what_it_is_given_is_refused(model, tmp_path):
    exported(tmp_path / "a.pt2", model, (torch.ones(2, 3),))
    refused(tmp_path / "a.pt2", "changes .*(a buffer|an input|its inputs)", trust=True)


def test_training_mode_is_refused(tmp_path):
    program = torch.export.export(nn.Sequential(nn.Dropout(0.5)).train(), (torch.ones(2, 3),))
    torch.export.save(program, tmp_path / "a.pt2")
    refused(tmp_path / "a.pt2", r"training mode .*eval\(\)", trust=True)


class Shared(nn.Module):
    """One layer that is called twice, a functional activation and a tuple of outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def forward(self, x):
        x = self.block(self.block(x))
        return F.relu(x - 1), x


class Scaled(nn.Module):
    """Adds a multiple in place."""

    def forward(self, x):
        return (x * 2).add_(x, alpha=3) + 1


class Unread(nn.Module):
    """An activation in place, whose result nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        x = self.fc(x) - 9.0  # below 0
        F.relu_(x)
        return x + 1


@pytest.mark.parametrize("model", [Writes(), Shared(), Scaled(), Unread()])
def test_writes_in_place_and_layers_that_are_called_twice_give_the_same(model, tmp_path):
    program = exported(tmp_path / "a.pt2", model, (torch.ones(2, 3),))
    work = lab.load(tmp_path / "a.pt2", trust=True)
    x = torch.randn(2, 3)
    with running(work.model):
        answer, right = work.model(x.clone()), program.module()(x.clone())
    torch.testing.assert_close(answer, right, rtol=0, atol=0)
    own = [type(module) for module in work.model.modules() if not list(module.children())]
    assert own.count(nn.Linear) == len(list(model.parameters())) // 2


def test_the_code_that_loads_a_program_again_trusts_it(tmp_path):
    exported(tmp_path / "net.pt2", nn.Linear(4, 2), (torch.ones(1, 4),))
    work = lab.load(tmp_path / "net.pt2", trust=True)
    assert work.loading_code.endswith("net.pt2', trust=True)\n")
    given = {"lab": lab}
    exec(work.loading_code, given)
    assert torch.equal(given["work"].output(), work.output())
