"""Programs of torch.export as workloads: read without torch.export.load, and equal to it."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
import zipfile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
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
    work = lab.load(tmp_path / "net.pt2")
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
    work = lab.load(tmp_path / "gpt.pt2", batch=3)
    assert work.inputs.tensors[0].shape == (3, 7) and int(work.inputs.tensors[0].max()) < 50
    assert work.model.tokens.weight is work.model.head.weight
    for shape in ((2, 7), (5, 11)):
        other = torch.randint(50, shape)
        with running(model), running(work.model):
            right, answer = model(other), work.model(other)
        assert torch.equal(answer["logits"], right["logits"])
        assert torch.equal(answer["hidden"][0], right["hidden"][0])


class Net(nn.Module):
    """What each rule of the converter sees once: layers, in-place operators, two inputs."""

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
    work = lab.load(path)
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
    work = lab.load(path, inputs={"mask": mask, "images": images})
    assert torch.equal(work.inputs.kwargs["mask"], mask)
    for wrong, match in (
        ({"x": mask}, "reads 'images', 'mask'"),
        (mask, "Tensor; give a dict"),
        ({"mask": mask, "images": [1]}, "'images' is a list"),
    ):
        with pytest.raises(lab.PaifuserError, match=match):
            lab.load(path, inputs=wrong)
    with pytest.raises(lab.PaifuserError, match="fixed to the sizes"):
        lab.load(path, batch=5)
    with pytest.raises(lab.PaifuserError, match="no option 'heads'"):
        lab.load(path, heads=2)


def rewritten(path, target, change=None, extra=(), compression=zipfile.ZIP_STORED):
    """A copy of an archive with its program changed, and entries added."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", compression) as new:
        for name in old.namelist():
            content = old.read(name)
            if change is not None and name.endswith(("model.json", "_config.json")):
                value = json.loads(content)
                change(name.rpartition("/")[2], value)
                content = json.dumps(value).encode()
            new.writestr(name, content)
        for name, content in extra:
            new.writestr(name, content)
    return target


def refused(path, match):
    with pytest.raises(lab.PaifuserError, match=match) as caught:
        lab.load(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 700


def weights_of(value, name="conv.weight"):
    return value["config"].get(name, {})


def nodes_of(value):
    return value.get("graph_module", {}).get("graph", {}).get("nodes", [{}])


def set_target(target):
    def change(file, value):
        if file == "model.json":
            nodes_of(value)[0]["target"] = target

    return change


def set_weight(**entries):
    def change(file, value):
        if file == "model_weights_config.json":
            weights_of(value).update(entries)
            weights_of(value)["tensor_meta"].update(entries.get("meta", {}))

    return change


def set_program(**entries):
    def change(file, value):
        if file == "model.json":
            value.update(entries)

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (set_target("torch.ops.mine.run.default"), "no operator of ATen"),
        (set_target("torch.ops.higher_order.cond"), "no operator of ATen"),
        (set_target("torch.hub.load"), "no operator of ATen"),
        (set_target("torch.ops.aten.from_file.default"), "none of the operators"),
        (set_target("torch.ops.aten.conv2d.out"), "no 'conv2d.out'|writes into"),
        (set_target("torch.ops.aten.relu.default"), "no argument|fails|takes"),
        (set_weight(use_pickle=True), "'conv.weight' is a pickle"),
        (set_weight(path_name="../weight_1"), "has no 'data/weights/../weight_1'"),
        (set_weight(meta={"sizes": [{"as_int": 1 << 40}]}), "past the limit"),
        (set_weight(meta={"sizes": [{"as_int": -1}] * 4}), "negative size"),
        (set_weight(meta={"strides": [{"as_int": 1 << 50}] * 4}), "where its shape needs"),
        (set_weight(meta={"dtype": 8}), "where its shape needs|is not what the file says"),
        (set_weight(meta={"layout": 2}), "sparse"),
        (set_program(schema_version={"major": 9, "minor": 0}), "of version '9'"),
        (set_program(graph_module=[]), "not a sound program"),
    ],
)
def test_a_program_that_would_run_code_or_does_not_fit_its_bytes_is_refused(
    change, match, net, tmp_path
):
    refused(rewritten(net[0], tmp_path / "bad.pt2", change), match)


def test_an_archive_that_is_compressed_overlaps_or_is_something_else_is_refused(net, tmp_path):
    path, _ = net
    packed = rewritten(path, tmp_path / "a.pt2", compression=zipfile.ZIP_DEFLATED)
    refused(packed, "compressed")
    refused(rewritten(path, tmp_path / "b.pt2", extra=[("other/x", b"")]), "out of place")
    code = [("net/data/aotinductor/model/a.so", b"")]
    refused(rewritten(path, tmp_path / "c.pt2", extra=code), "compiled code")
    second = [("net/models/second.json", b"{}")]
    refused(rewritten(path, tmp_path / "d.pt2", extra=second), "holds 2 programs")
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        at = file.start_dir  # the first entry of the list: its two sizes
    content[at + 20 : at + 28] = (1 << 30).to_bytes(4, "little") * 2
    (tmp_path / "e.pt2").write_bytes(content)
    refused(tmp_path / "e.pt2", "its entries overlap")
    (tmp_path / "f.pt2").write_bytes(b"PK" + bytes(200))
    refused(tmp_path / "f.pt2", "not a sound")
    deep = json.dumps({"a": 1}).replace("1", "[" * 5000 + "]" * 5000).encode()
    with zipfile.ZipFile(tmp_path / "g.pt2", "w") as file:
        file.writestr("x/models/m.json", deep)
        file.writestr("x/archive_format", b"pt2")
    refused(tmp_path / "g.pt2", "not a sound")
    refused(tmp_path / "missing.pt2", "no program")


def test_changed_weights_are_found_by_their_checksum(net, tmp_path):
    content = bytearray(net[0].read_bytes())
    with zipfile.ZipFile(net[0]) as file:
        info = next(each for each in file.infolist() if each.filename.endswith("weight_0"))
    content[info.header_offset + 100] ^= 1
    (tmp_path / "bad.pt2").write_bytes(content)
    refused(tmp_path / "bad.pt2", "not a sound.*CRC|not a sound")


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


class Huge(nn.Module):
    """Would make a tensor of 2^40 elements."""

    def forward(self, x):
        return x[:1, :1].expand(1 << 20, 1 << 20).sum() + x


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (Writes(), "in place and read again"),
        (Counts(), "weight or a constant|changes its inputs"),
        (CountsInPart(), "weight or a constant|changes its inputs"),
        (Huge(), "past the limit"),
    ],
)
def test_what_a_module_cannot_repeat_or_hold_is_refused(model, match, tmp_path):
    exported(tmp_path / "a.pt2", model, (torch.ones(2, 3),))
    refused(tmp_path / "a.pt2", match)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_give_a_model_or_one_error(net, tmp_path_factory, changes):
    with zipfile.ZipFile(net[0]) as file:
        contents = {name: bytearray(file.read(name)) for name in file.namelist()}
    program = next(content for name, content in contents.items() if name.endswith("model.json"))
    for index, byte in changes:
        program[index % len(program)] = byte
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in contents.items():
            file.writestr(name, bytes(content))
    path = tmp_path_factory.getbasetemp() / "mutated.pt2"
    path.write_bytes(buffer.getvalue())
    with contextlib.suppress(lab.PaifuserError):  # and no other error
        lab.load(path)
