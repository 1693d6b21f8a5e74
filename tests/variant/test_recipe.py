"""Recipes as text, as code and as values; and the errors of invalid recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paifuser_lab as lab
from paifuser_lab import Recipe, steps
from paifuser_lab.errors import FileError, RecipeError
from paifuser_lab.steps import step_class, step_names
from paifuser_lab.variant.yaml_text import dump, parse

FORMATS = st.sampled_from(["fp32", "bf16", "fp16"])
SENTENCES = (
    st.none()
    | st.text(max_size=40)
    | st.sampled_from(["1e-3", "08", "no", "null", "~", "2001-01-01", "a: b # c", "'\"\n\t é"])
)
PATTERNS = st.text(min_size=1, max_size=12) | st.sampled_from(
    ["layer4.*", "*", "1e3", "true", "[ab].x"]
)
ENGINES = st.builds(
    lambda name, threads, freeze: (
        {"name": name} | threads | ({"freeze": True} if freeze and name == "inductor" else {})
    ),
    st.sampled_from(["eager", "inductor", "onnxruntime", "openvino"]),
    st.just({}) | st.builds(lambda count: {"threads": count}, st.integers(1, 64)),
    st.booleans(),
)
CHANGES = st.one_of(
    st.just({"fold": {}}),
    st.just({"layout": {}}),
    st.builds(lambda default: {"precision": {"default": default}}, FORMATS),
    st.builds(
        lambda layers: {"precision": {"layers": layers}},
        st.dictionaries(PATTERNS, FORMATS, min_size=1, max_size=3),
    ),
)


@st.composite
def recipes(draw: Any) -> Recipe:
    chosen = draw(st.lists(CHANGES, max_size=4)) + (
        [{"backend": draw(ENGINES)}] if draw(st.booleans()) else []
    )
    message = [
        {kind: options | ({"why": why} if (why := draw(SENTENCES)) else {})}
        for step in chosen
        for kind, options in step.items()
    ]
    return Recipe(
        message,
        workload=draw(
            st.none() | st.text(min_size=1, max_size=20) | st.sampled_from(["1e5", "yes", "012"])
        ),
    )


@settings(max_examples=150, deadline=None)
@given(recipes())
def test_a_recipe_written_as_yaml_is_the_same_recipe_when_read(recipe: Recipe) -> None:
    again = Recipe.from_text(recipe.to_text())
    assert (again.steps, again.workload, again.digest) == (
        recipe.steps,
        recipe.workload,
        recipe.digest,
    )


@settings(max_examples=40, deadline=None)
@given(recipes())
def test_a_recipe_as_code_makes_the_same_recipe_when_run(recipe: Recipe) -> None:
    code = recipe.as_code()
    names: dict[str, Any] = {}
    exec(code[: code.index("variant =")].replace("work = lab.load", "loaded = str"), names)
    assert names["recipe"].digest == recipe.digest and names["recipe"].workload == recipe.workload


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=10)
        | st.floats(allow_nan=False),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_plain_data_survives_yaml(data: Any) -> None:
    assert parse(dump(data))[0] == data
    assert parse(dump(data, flow=True))[0] == data


def test_a_recipe_survives_a_file(tmp_path: Path) -> None:
    recipe = Recipe(
        ["fold", {"backend": {"name": "onnxruntime", "why": "quickest — of all"}}],
        workload="resnet18",
    )
    assert Recipe.load(recipe.save(tmp_path / "deep" / "r.yaml")) == recipe
    assert Recipe.load(tmp_path / "deep" / "r.yaml").explain().endswith("quickest — of all")


def test_a_recipe_with_options_per_layer_can_be_read() -> None:
    text = (
        "version: 1\nworkload: resnet18\nsteps:\n  - fold: {}\n"
        '  - precision: {default: bf16, layers: {"layer4.*": fp32}}\n'
    )
    recipe = Recipe.from_text(text)
    assert recipe.label == "fold batch-norm → bf16 · layer4.*: fp32"
    assert recipe.workload == "resnet18"


def test_numbers_and_booleans_are_those_of_yaml_1_2() -> None:
    text = (
        "a: 1e-3\nb: 1E5\nc: no\nd: true\ne: 012\nf: -.5\ng: .inf\nh: 0x1F\ni: 1:30\nj: "
        "2001-01-01\nk: ~\nl: 1_000"
    )
    assert parse(text)[0] == {
        "a": 0.001,
        "b": 1e5,
        "c": "no",
        "d": True,
        "e": 12,
        "f": -0.5,
        "g": float("inf"),
        "h": "0x1F",
        "i": "1:30",
        "j": "2001-01-01",
        "k": None,
        "l": "1_000",
    }
    assert isinstance(parse("1e3")[0], float) and isinstance(parse("7")[0], int)


def test_a_bare_value_sets_a_step_s_main_option_and_is_saved_in_full() -> None:
    short = [
        {"prune": 0.5},
        {"precision": "int8"},
        {"layout": "channels_last"},
        {"backend": "openvino"},
    ]
    full = [
        {"prune": {"ratio": 0.5}},
        {"precision": {"default": "int8"}},
        {"layout": {"format": "channels_last"}},
        {"backend": {"name": "openvino"}},
    ]
    assert Recipe(short) == Recipe(full)
    assert Recipe.from_text(HEAD + "  - backend: openvino").steps == Recipe(full[-1:]).steps
    assert "name: openvino" in Recipe(short).to_text()


@pytest.mark.parametrize("kind", step_names())
def test_a_main_option_is_an_option_of_its_step(kind: str) -> None:
    step = step_class(kind)
    assert not step.main_option or step.main_option in step.model_fields


def test_the_digest_covers_steps_and_not_reasons() -> None:
    plain, message = Recipe(["fold"]), Recipe([{"fold": {"why": "exact"}}], workload="x")
    assert plain.digest == message.digest != Recipe(["layout"]).digest
    assert Recipe(["fold", "layout"]).digest != Recipe(["layout", "fold"]).digest
    spelled = Recipe([{"backend": {"name": "eager", "freeze": False}}])
    assert spelled.digest == Recipe(["backend"]).digest, (
        "an explicit default does not change the digest"
    )


def test_plus_and_slices_return_new_recipes_and_a_recipe_is_a_sequence_of_steps() -> None:
    recipe = Recipe(["fold"], workload="resnet18")
    longer = recipe + "layout" + {"backend": {"name": "eager"}}
    assert (len(recipe), len(longer)) == (1, 3)
    assert longer[:-2] == recipe and longer[:0] == Recipe() and longer[:1].workload == "resnet18"
    assert len({recipe, longer[:1], longer}) == 2
    assert [step.kind for step in longer] == ["fold", "layout", "backend"]
    assert longer[-1].kind == "backend"


HEAD = "version: 1\nsteps:\n"
BAD = {
    "an unknown step, the nearest named": (
        HEAD + "  - fodl: {}",
        3,
        r"no step 'fodl'; did you mean 'fold'\?.*fold, layout",
    ),
    "an unknown step like no other": (
        HEAD + "  - xyzzy: {}",
        3,
        r"no step 'xyzzy'\. The steps are .*another package needs that package installed",
    ),
    "an unknown option": (
        HEAD + "  - fold: {}\n  - backend: {naem: eager}",
        4,
        r"'backend' has no option 'naem'; it has .*name",
    ),
    "an option on a line of its own": (
        HEAD + "  - backend:\n      name: eager\n      thread: 1",
        5,
        "no option 'thread'",
    ),
    "a wrong type": (
        HEAD + "  - backend: {threads: many}",
        3,
        "threads = 'many': it should be a valid integer",
    ),
    "a value out of range": (
        HEAD + "  - backend: {threads: 0}",
        3,
        "threads = 0: .*greater than or equal to 1",
    ),
    "an unknown engine": (HEAD + "  - backend: {name: tpu}", 3, "name = 'tpu'.*eager"),
    "options that contradict": (
        HEAD + "  - backend: {name: eager, freeze: true}",
        3,
        "freeze belongs to inductor",
    ),
    "a format that is none": (
        HEAD + '  - precision: {layers: {"a": int3}}',
        3,
        "layers.a = 'int3'",
    ),
    "a step that says nothing": (HEAD + "  - precision: {}", 3, "give a default or layers"),
    "options that are a list": (HEAD + "  - fold: [1]", 3, "options of 'fold' are"),
    "options that are an empty list": (HEAD + "  - fold: []", 3, "options of 'fold' are"),
    "options that are false": (HEAD + "  - fold: false", 3, "options of 'fold' are"),
    "a bare truth value": (HEAD + "  - prune: true", 3, "options of 'prune' are True"),
    "a bare engine that is none": (HEAD + "  - backend: tpu", 3, "name = 'tpu'.*eager"),
    "a bare share out of range": (HEAD + "  - prune: 2", 3, "ratio = 2"),
    "a step with two names": (
        HEAD + "  - {fold: {}, layout: {}}",
        3,
        "a step is a name with its options",
    ),
    "a step that is a number": (HEAD + "  - 7", 3, "a step is a name with its options"),
    "a backend before other steps": (
        HEAD + "  - backend: {}\n  - fold: {}",
        2,
        "'backend' stands before other steps",
    ),
    "an unknown key": ("version: 1\nworkloads: a\nsteps: []", 2, "no key 'workloads'"),
    "a later version": (
        "# new\nversion: 2\nsteps: []",
        2,
        "version 2 is unknown; this program reads version 1",
    ),
    "a version that is a boolean": ("version: true\nsteps: []", 1, "version True is unknown"),
    "a version that is a text": ("version: '1'\nsteps: []", 1, "version '1' is unknown"),
    "no version": ("steps: []", 1, "version None"),
    "no steps": ("version: 1", 1, "steps is a list"),
    "steps that are a mapping": ("version: 1\nsteps: {fold: {}}", 2, "steps is a list"),
    "a workload that is a number": (
        "version: 1\nworkload: 3\nsteps: []",
        2,
        "the workload is a name",
    ),
    "malformed YAML": ("version: 1\nsteps:\n  - fold: {", 3, "this is not YAML"),
    "a tab for spaces": ("version: 1\nsteps:\n\t- fold: {}", 3, "this is not YAML"),
    "two documents": (HEAD + "  - fold\n---\nversion: 1", 4, "this is not YAML"),
    "a control character": ("version: 1\nsteps: []\nx: \x00", 3, "this is not YAML"),
    "a key twice": ("version: 1\nsteps: []\nversion: 1", 3, "the key 'version' is there twice"),
    "an option twice": (
        HEAD + "  - backend: {name: eager, name: inductor}",
        3,
        "the key 'name' is there twice",
    ),
    "a key that is a list": ("version: 1\n? [a, b]\n: 1\nsteps: []", 2, "a key is a name"),
    "an alias": ("version: 1\nsteps: &a []\nworkload: *a", 2, "anchors and aliases are not used"),
    "a merge of an alias": ("a: &a {x: 1}\nb: {<<: *a}", 1, "anchors and aliases"),
    "an object": (
        "version: 1\nsteps: !!python/object/apply:os.system ['touch HERE']",
        2,
        "would make an object",
    ),
    "an object in a key": (
        "version: 1\n!!python/name:os.system x: 1\nsteps: []",
        2,
        "a key is a name",
    ),
    "a tag of one's own": (HEAD + "  - fold: !mine {}", 3, "would make an object"),
    "a set": (HEAD + "  - fold: !!set {a}", 3, "would make an object"),
    "an integer that is none": ("version: !!int one\nsteps: []", 1, "int cannot hold this value"),
    "a boolean that is none": ("version: 1\nsteps: !!bool maybe", 2, "bool cannot hold this value"),
    "a number of ten thousand digits": (
        f"version: {'9' * 10_000}\nsteps: []",
        1,
        "int cannot hold this value",
    ),
    "not a number": (HEAD + "  - backend: {threads: .nan}", 3, "threads = nan"),
    "a nest": (HEAD + "  - " + "[" * 5000, 3, "nested deeper than 32 levels"),
}


@pytest.mark.parametrize(("text", "line", "message"), BAD.values(), ids=BAD)
def test_errors_name_the_line(
    text: str, line: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match=message) as caught:
        Recipe.from_text(text)
    message = str(caught.value)
    quoted = text.splitlines()[line - 1].split()[0][:100]
    assert message.startswith(f"Line {line}: `{quoted}")
    assert "\n" not in message
    assert len(message) < 700
    assert list(tmp_path.iterdir()) == [], "nothing was run"


@pytest.mark.parametrize("text", ["", "just words", "- fold", "7", "# nothing"])
def test_a_text_that_is_not_a_mapping_is_refused(text: str) -> None:
    with pytest.raises(
        RecipeError, match="A recipe is a mapping with the keys version, workload and steps"
    ):
        Recipe.from_text(text)


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
    )
    with pytest.raises(RecipeError, match=r"^Line 1: .*anchors and aliases"):
        Recipe.from_text(bomb)


def test_a_text_of_megabytes_is_refused() -> None:
    with pytest.raises(RecipeError, match="past the limit"):
        Recipe.from_text("#" * (1 << 21))


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="fold:version1steps{}[]-!&*#'\"\n \t,?|>%@~.e\x00\u2028\x85", max_size=60))
def test_any_text_is_parsed_or_raises_a_recipe_error(text: str) -> None:
    try:
        Recipe.from_text("version: 1\nsteps:\n" + text)
    except RecipeError as error:
        assert str(error)  # noqa: PT017 (it need not fail)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("fold", r"not a list of steps; write Recipe\(\['fold'\]\)"),
        ({"backend": {"name": "onnxruntime"}}, "not a list of steps"),
        ([5], "step 1 is 5"),
        (["fold", {}], "step 2 is {}"),
        ([{"backend": {"name": "eager"}}, "fold"], "put it last"),
        ([{"backend": {}}, {"backend": {}}], "put it last"),
    ],
)
def test_invalid_steps_are_refused_in_code_too(steps: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Recipe(steps)


def test_a_missing_file_and_a_binary_file_have_their_own_errors(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"Cannot read .*none\.yaml"):
        Recipe.load(tmp_path / "none.yaml")
    (tmp_path / "r.yaml").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(FileError, match=r"r\.yaml is not a text file"):
        Recipe.load(tmp_path / "r.yaml")


def test_every_step_has_docstrings() -> None:
    for kind in step_names():
        step = steps.step_class(kind)
        assert step.kind == kind and step.__doc__ and step.apply.__doc__


def test_explain_lists_the_reasons() -> None:
    assert (
        lab.Recipe(["fold", {"layout": {"why": "images"}}]).explain()
        == "1. fold batch-norm\n2. channels last: images"
    )


@pytest.mark.parametrize(
    ("before", "step", "after"),
    [
        ([], "fold", ["fold"]),
        (["fold"], "fold", ["fold"]),
        (["fold", "layout"], "fold", ["fold", "layout"]),
        (
            ["fold", {"backend": {"name": "onnxruntime"}}],
            "layout",
            ["fold", "layout", {"backend": {"name": "onnxruntime"}}],
        ),
        (
            [{"backend": {"name": "onnxruntime"}}],
            {"backend": {"name": "eager"}},
            [{"backend": {"name": "eager"}}],
        ),
        (
            [{"precision": {"layers": {"a": "bf16"}}}, "layout"],
            {"precision": {"layers": {"b": "fp16"}}},
            [{"precision": {"layers": {"a": "bf16", "b": "fp16"}}}, "layout"],
        ),
    ],
)
def test_a_step_is_inserted_in_its_position(before: Any, step: Any, after: Any) -> None:
    assert Recipe(before).with_step(step) == Recipe(after)


@pytest.mark.parametrize("name", ["kind", "by"])
def test_attention_takes_its_kind_under_both_names_and_saves_it_under_one(name: str) -> None:
    recipe = Recipe([{"attention": {name: "window"}}])
    assert recipe.to_text().endswith("- attention: {kind: window}\n")
    assert step_class("attention")(**{name: "window"}).by == "window"
