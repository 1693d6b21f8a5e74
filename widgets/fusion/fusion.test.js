import assert from "node:assert/strict";
import { test } from "node:test";
import { fusionChoice } from "./choice.js";
import { fusionColumns, leastPlaceWidth } from "./row.js";
import {
  canGain,
  fusionSpeedText,
  fusionSummary,
  isSlower,
  placeSentence,
  reasonText,
  savedText,
  sharedPath,
  standingWords,
  unpackedFusion,
} from "./table.js";
import { Arrangement } from "../shared/arrangement.js";
import { fittingColumns } from "../shared/grid.js";
import { partedPath } from "../shared/tree.js";

const floats = (/** @type {number[]} */ ...values) =>
  new DataView(Float32Array.from(values).buffer);
const numbered = (/** @type {string[]} */ ...values) => {
  const names = [...new Set(values)];
  return {
    names,
    codes: new DataView(Uint16Array.from(values, (value) => names.indexOf(value)).buffer),
  };
};
const packed = {
  title: "net: what runs as one",
  machine: "here",
  layers: [
    ["stem.conv", "stem.norm", "stem.relu"],
    ["body.0.conv", "body.0.norm"],
    ["body.1.conv", "tail"],
    ["head"],
    ["body.2.conv", "body.2.norm"],
  ],
  pattern: numbered(
    "convolution + batch-norm + relu",
    "convolution + batch-norm",
    "convolution + sum",
    "linear",
    "convolution + batch-norm",
  ),
  runs: numbered("oneDNN", "oneDNN", "", "", ""),
  standing: numbered("fused", "slower", "apart", "off", "off"),
  reason: numbered(
    "",
    "it reorders its input",
    "its answer is read twice",
    "it was not asked for",
    "it was not asked for",
  ),
  numbers: {
    apart_ms: floats(0.4, 1, NaN, 2, 0.5),
    fused_ms: floats(0.2, 1.25, NaN, 1, 1),
    saved_bytes: floats(2e6, NaN, NaN, 1e3, NaN),
    error: floats(1e-7, 2e-7, NaN, 0, NaN),
  },
};
const table = unpackedFusion(packed);
const [stem, slower, apart, head, slowOff] = table.places;
/** @param {any} state @param {any[]} [requests] */
const modelOf = (state, requests = []) => ({
  get: (/** @type {string} */ name) => ({ state, requests, served: 0 })[name],
});

test("a packed map is unpacked; an empty map has no places", () => {
  assert.deepEqual(
    [table.isKnown, unpackedFusion({}).isKnown, unpackedFusion(undefined).places],
    [true, false, []],
  );
  assert.deepEqual(
    [stem.place, stem.where, stem.names, stem.speedup],
    ["stem.conv", "stem.", ["conv", "norm", "relu"], 2],
  );
  assert.deepEqual(
    table.places.map((one) => one.canSwitch),
    [true, true, false, true, true],
  );
  assert.equal(table.placeOf.get("stem.relu"), stem, "each of its layers leads to a place");
  assert.equal(table.longestMs, 2, "what was not timed does not count");
});

test("layers share the beginning of their paths, and no name is left empty", () => {
  assert.deepEqual(sharedPath(["a.b.conv", "a.b.norm"]), {
    where: "a.b.",
    names: ["conv", "norm"],
  });
  assert.deepEqual(sharedPath(["a.b", "a.b.c"]), { where: "a.", names: ["b", "b.c"] });
  assert.deepEqual(sharedPath(["head"]), { where: "", names: ["head"] });
  assert.deepEqual(sharedPath(["body.1.conv", "tail"]), {
    where: "",
    names: ["body.1.conv", "tail"],
  });
  assert.deepEqual(
    [partedPath("a.b.c.d", 2), partedPath("a", 2), partedPath("a.b.", 2)],
    [
      ["a.b.", "c.d"],
      ["", "a"],
      ["a.", "b."],
    ],
  );
});

test("a slower place says so, and one that is off is slower where it was timed so", () => {
  assert.deepEqual(
    [fusionSpeedText(stem), fusionSpeedText(slower), fusionSpeedText(apart)],
    ["2.00 ×", "0.80 ×, slower", ""],
  );
  assert.deepEqual(table.places.map(isSlower), [false, true, false, false, true]);
  assert.deepEqual(table.places.map(canGain), [true, false, false, true, false]);
  assert.equal(
    standingWords(slower, true),
    "runs as one, and is slower so",
    "forced, it is not praised",
  );
  assert.deepEqual(
    [stem, slower, apart, head].map((one) => standingWords(one, false)),
    [
      "apart; would gain as one",
      "would be slower as one, so it stays apart",
      "cannot be one",
      "apart; would gain as one",
    ],
  );
});

test("a place tells its numbers, and nothing of what was not measured", () => {
  assert.deepEqual(
    [fusionSpeedText(stem), savedText(stem), fusionSpeedText(apart), savedText(apart)],
    ["2.00 ×", "2 MB", "", ""],
  );
  assert.equal(
    placeSentence(apart, false),
    "cannot be one · its answer is read twice · convolution + sum",
  );
  assert.ok(placeSentence(stem, true).includes("2 MB less through memory at each call"));
  assert.deepEqual(
    [reasonText(slower, false), reasonText(slower, true), reasonText(head, false)],
    ["it reorders its input", "", ""],
    "not having been asked for is no reason",
  );
});

test("the summary counts the sites that are fused, could be, would be slower and cannot", () => {
  assert.equal(
    fusionSummary(table, new Set()),
    "Nothing runs as one: 2 of 5 places could, which would save 1.200 ms, each timed by itself" +
      " · 2 would be slower · 1 cannot be one",
  );
  assert.equal(
    fusionSummary(table, new Set(["stem.conv"])),
    "1 of 5 places run as one, which saves 0.200 ms, each timed by itself" +
      " · 1 more could · 2 would be slower · 1 cannot be one",
  );
  const timed = unpackedFusion({ ...packed, whole: "1.12 × as fast" });
  const asTimed = new Set(
    timed.places.filter((one) => one.standing === "fused").map((one) => one.place),
  );
  assert.ok(fusionSummary(timed, asTimed).includes(" · the whole model 1.12 × as fast · "));
  assert.ok(
    !fusionSummary(timed, new Set(["body.0.conv"])).includes("whole model"),
    "it was timed otherwise",
  );
  assert.ok(fusionSummary(table, new Set(["body.0.conv"])).includes("which costs 0.250 ms"));
  const none = fusionSummary(
    unpackedFusion({ ...packed, layers: [], notes: ["not fused: conv2d"] }),
    new Set(),
  );
  assert.ok(none.startsWith("No layers") && none.endsWith(" · not fused: conv2d"));
});

const columnsOf = (/** @type {boolean} */ hasRuns) =>
  fusionColumns(
    hasRuns,
    true,
    () => fusionChoice(modelOf(undefined), table),
    () => "",
  );

test("a filter finds layers, patterns and what runs; sorting puts unknown numbers last", () => {
  const shown = new Arrangement(unpackedFusion({}), () => columnsOf(true));
  shown.take(table);
  const found = (/** @type {string} */ query) => {
    shown.filter(query);
    return shown.rows;
  };
  assert.deepEqual(
    [found("stem"), found("RELU"), found("onednn"), found("body norm"), found("moon"), found("")],
    [[0], [0], [0, 1], [1, 4], [], [0, 1, 2, 3, 4]],
  );
  const sorted = (/** @type {string} */ name) => {
    shown.sort(name);
    return shown.rows;
  };
  assert.deepEqual(sorted("speed"), [0, 3, 1, 4, 2], "the largest first");
  assert.deepEqual(sorted("speed"), [4, 1, 0, 3, 2], "not timed is last in both directions");
  assert.deepEqual(sorted("layer"), [1, 2, 4, 3, 0]);
});

test("a table that lost the column it was sorted by is as the model is", () => {
  const shown = new Arrangement(unpackedFusion({}), () => columnsOf(shown.table.places.length > 2));
  shown.take(table);
  shown.sort("runs");
  shown.take(unpackedFusion({ ...packed, layers: [["head"], ["tail"]] }));
  assert.deepEqual([shown.sorting, shown.rows], [null, [0, 1]]);
});

test("narrow widths drop columns, the speed last; without a fused site `runs` is dropped", () => {
  const names = (/** @type {number} */ width, hasRuns = true) =>
    fittingColumns(columnsOf(hasRuns), width, leastPlaceWidth(width)).map((column) => column.name);
  const all = ["switch", "layer", "runs", "bars", "speed", "saved", "error"];
  assert.deepEqual(names(1400), all);
  assert.deepEqual(
    names(1400, false),
    all.filter((name) => name !== "runs"),
  );
  assert.deepEqual(names(420), ["switch", "layer", "speed"]);
  const counts = Array.from({ length: 100 }, (_, step) => names(300 + 10 * step).length);
  assert.deepEqual(
    counts,
    counts.toSorted((one, other) => one - other),
  );
});

test("fused sites are those that Python sent plus later requests; alone, those of the map", () => {
  assert.deepEqual([...fusionChoice(modelOf(undefined), table).on], ["stem.conv"]);
  const sent = { fused: { has_step: true, on: ["stem.conv"] } };
  assert.deepEqual([...fusionChoice(modelOf(sent), table).on], ["stem.conv"]);
  const asked = fusionChoice(
    modelOf(sent, [
      { id: 1, do: "fuse", place: "head", is_on: true },
      { id: 2, do: "fuse", place: "stem.conv", is_on: false },
    ]),
    table,
  );
  assert.deepEqual([[...asked.on], [...asked.asked]], [["head"], ["head", "stem.conv"]]);
  const all = fusionChoice(modelOf(sent, [{ id: 1, do: "fuse_all", is_on: true }]), table);
  assert.deepEqual([...all.on], ["stem.conv", "head"], "what would be slower is left apart");
  const none = fusionChoice(modelOf(sent, [{ id: 1, do: "fuse_all", is_on: false }]), table);
  assert.deepEqual([none.on.size, none.hasStep], [0, false]);
  assert.deepEqual(
    [
      ...fusionChoice(
        modelOf({ fused: { has_step: false, on: [] } }, [{ id: 1, do: "undo" }]),
        table,
      ).on,
    ],
    [],
  );
});
