"""The report page: one file that asks for nothing, keeps text as text, and folds by itself."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from paifuser_lab.records import Ceiling, Explanation, LayerProfile, OperatorProfile, Reason
from paifuser_lab.views.page import html_report
from tests.support.advised import profile, row

NASTY = "<img src=x onerror=alert(1)>"
KNOWN = {"threads": 2, "latency_ms": 12.3, "latency_spread_ms": (12.0, 13.0)}


def leaf(layer, ms, total, kind="Conv2d", **more):
    return row(layer, kind, ms, share=ms / total, output_shapes=((1, 64, 56, 56),), **more)


def profile_of(layers, total, **more):
    root = LayerProfile(
        layer="",
        kind="Net",
        total_ms=total,
        share=1.0,
        total_parameters=11_700_000,
        total_flops=3 * 10**9,
        peak_bytes=10**7,
        operators=(OperatorProfile(name="aten::add", calls=2, ms=0.2),),
    )
    return profile(root, *layers, **{"workload": "net"} | KNOWN | more)


def explained(layer, sentence):
    reason = Reason(
        topic="layout", sentence=sentence, step={"layout": {}}, saves_ms=2.0, basis="measured"
    )
    return Explanation(
        workload="net", layer=layer, kind="Conv2d", ms=6, share=0.5, reasons=(reason,)
    )


PROFILE = profile_of(
    [
        leaf("a", 6, 12),
        LayerProfile(layer="b", kind="Part", total_ms=6, share=0.5),
        leaf("b.0", 6, 12),
    ],
    12,
)


class Reader(HTMLParser):
    """What a browser would see: tags with their attributes, ids, and whether every tag is closed
    where it should be.
    """

    VOID = {"meta", "link", "img", "br"}

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.ids, self.words = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for key, value in attributes if key == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for key, value in attributes if key == "id"]

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"{tag} closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_asks_for_nothing_and_runs_nothing():
    text = html_report(PROFILE, [explained("a", "It helps.")])
    assert not re.search(
        r"""(src|href)\s*=\s*["']?\s*(https?:|//)|url\(\s*["']?(https?:|//)|@import""", text
    )
    reader = Reader(text)
    assert not {"script", "iframe", "object", "embed", "base", "form"} & {
        tag for tag, _ in reader.tags
    }
    assert not [key for _, attributes in reader.tags for key in attributes if key.startswith("on")]
    assert all(
        value.startswith(("#", "data:"))
        for _, attributes in reader.tags
        for key, value in attributes.items()
        if key in ("href", "src")
    )
    policy = next(
        attributes["content"]
        for tag, attributes in reader.tags
        if tag == "meta" and "http-equiv" in attributes
    )
    assert policy.startswith("default-src 'none'")


def test_the_page_is_well_formed_and_its_ids_are_unique():
    reader = Reader(
        html_report(PROFILE, [explained("a", "It helps."), explained("", "So does this.")])
    )
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids)) > 10


def test_text_from_a_model_is_never_markup():
    named = profile_of(
        [leaf(NASTY, 6, 12, kind=NASTY, detail=f'" {NASTY}')],
        12,
        workload=NASTY,
        machine=NASTY,
    )
    reason = Reason(topic=NASTY, sentence=NASTY, step={NASTY: {NASTY: NASTY}})
    explanation = Explanation(
        workload=NASTY, layer=NASTY, kind=NASTY, ms=1, share=1, reasons=(reason,)
    )
    for text in (html_report(named, [explanation], title=NASTY), named._repr_html_()):
        reader = Reader(text)
        assert "img" not in {tag for tag, _ in reader.tags}
        assert not [
            key for _, attributes in reader.tags for key in attributes if key.startswith("on")
        ]
        assert NASTY in "".join(reader.words)


def test_explanations_are_on_the_page_with_their_advice_and_only_if_there_are_any():
    text = html_report(PROFILE, [explained("a", "It is slow because.")])
    assert "It is slow because." in text and "→ layout saves about 2 ms (timed alone)" in text
    assert "would help" not in html_report(PROFILE)
    slow = explained("a", "It is slow because.").model_copy(update={"ms": 1234.4})
    assert "<span>1234 ms <small>" in html_report(PROFILE, [slow])


def test_a_profile_without_operations_has_a_page_without_a_roofline():
    assert html_report(profile_of([], 0.0)).count("<svg") == 1
    assert html_report(PROFILE).count("<svg") == 2


def test_the_tree_folds_and_every_row_says_in_words_what_its_columns_say():
    reader = Reader(PROFILE._repr_html_())
    details = [attributes for tag, attributes in reader.tags if tag == "details"]
    assert len(details) == 2 and all("open" in attributes for attributes in details)
    titles = [attributes["title"] for _, attributes in reader.tags if "title" in attributes]
    assert any(
        "b.0, Conv2d gives 1×64×56×56: 6.000 ms with all layers inside it, 50.0% of the time"
        in text
        for text in titles
    )
    assert (
        len([tag for tag, attributes in reader.tags if attributes.get("role") == "listitem"]) == 5
    )  # four layers, one operator between them


@pytest.mark.parametrize("width", [500, 700, 800, 1000, 1200])
def test_every_width_has_a_grid_with_as_many_columns_as_are_shown(width):
    rules = re.search(r"<style>(.*?)</style>", PROFILE._repr_html_(), re.DOTALL)[1]
    columns, gone = (
        re.search(r"\.pf-tree \.pf-row { grid-template-columns: ([^;]*); }", rules)[1],
        set(),
    )
    for limit, hidden, grid in re.findall(
        r"max-width: (\d+)px\) { (.*?) { display: none; } .*?columns: ([^;]*); } }", rules
    ):
        if width <= int(limit):
            columns, gone = grid, gone | set(hidden.split(", "))
    assert columns.count("em") == 12 - len(gone)


def test_a_thousand_layers_stay_a_page():
    parts = [
        LayerProfile(layer=f"stage{k}", kind="Part", total_ms=100.0, share=0.1) for k in range(10)
    ]
    leaves = [leaf(f"stage{k % 10}.a_layer_with_a_name_{k}", 1.0, 1000) for k in range(1000)]
    text = html_report(profile_of([*parts, *leaves], 1000.0))
    assert len(text.encode()) < 3_000_000
    assert text.count("a_layer_with_a_name_999") > 0


def test_in_brief_a_large_model_is_its_costliest_layers_and_a_small_one_its_tree():
    large = profile_of([leaf(f"<b>.{index}", 1.0 + index, 1000) for index in range(300)], 1000)
    shown = large.brief_html()
    names = re.findall(r'pf-name">([^<]+)', shown)
    assert names == [f"&lt;b&gt;.{index}" for index in range(299, 259, -1)]
    assert "the 40 costliest of 301 layers" in shown and len(shown) < 60_000
    details = [tag for tag, _ in Reader(shown).tags if tag == "details"]
    assert details == [] and PROFILE.brief_html() == PROFILE._repr_html_()


def test_the_roofs_are_those_of_the_threads_that_they_were_measured_with():
    assert PROFILE.threads == 2 and "roofs of 1 thread: 100 GFLOP/s" in html_report(PROFILE)


def test_no_rate_has_an_exponent():
    ceiling = Ceiling(threads=1, fp32_gflops=2500.0, bandwidth_gbs=3000.0)
    fast = leaf("a", 6, 12, flops=9 * 10**9, read_bytes=12 * 10**9)
    text = html_report(profile_of([fast], 12, ceiling=ceiling))
    assert "2,500 GFLOP/s in fp32, and 3,000 GB/s from memory" in text
    assert "1,500 GFLOP/s" in text and not re.search(r"\de\+\d", text)
