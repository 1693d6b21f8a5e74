import assert from "node:assert/strict";
import { test } from "node:test";
import { levelsOf, timeParts } from "../layers/time_layout.js";
import { layerColumns, runsAsText } from "../layers/columns.js";
import { fittedName } from "../shared/fitted_name.js";
import { ratioText, readableBytes, threeDigits } from "../shared/format.js";
import "../shared/fake_page.js";
import { sortedRows } from "../shared/order.js";
import { isJoined, unpackedProfile, whyUnknown } from "../shared/unpack.js";
import { timeBars } from "./detail.js";
import { firstWords, isAsItCame, storyPieces, whoseFigures } from "./headline.js";
import { fittingCount } from "./overflow.js";
import { coresText } from "./quality_panel.js";
import { lineText } from "./status_line.js";
import { sectionsWith, segmentsOf, tabsOf } from "./tab_plan.js";
import { reasonsOf, trustLabel, trustOf } from "./trust_strip.js";

/** @returns {any} */
const section = (/** @type {string} */ name, /** @type {string} */ tab, more = {}) => ({
  name,
  title: name.toUpperCase(),
  tab,
  place: "",
  isWide: true,
  isAlwaysShown: false,
  ...more,
});
const view = (/** @type {DataView | any} */ array) => new DataView(array.buffer);

const floats = (/** @type {number[]} */ ...of) => view(Float32Array.from(of));
const codes = (/** @type {number[]} */ ...of) => view(Uint16Array.from(of));
const engineTable = () =>
  unpackedProfile({
    workload: "net",
    engine: "ONNX Runtime",
    layer: ["", "a", "a.conv", "a.norm", "a.pool", "a.act", "b", "engine itself"],
    parent: view(Int32Array.from([-1, 0, 1, 1, 1, 1, 0, 0])),
    runs_as: { names: ["", "Conv + BatchNorm", "Gemm"], codes: codes(0, 0, 1, 0, 0, 0, 2, 0) },
    joined_into: view(Int32Array.from([-1, -1, -1, 2, -1, 2, -1, -1])),
    unknown_why: { self_ms: { names: ["", "in one node"], codes: codes(0, 0, 0, 1, 1, 1, 0, 0) } },
    numbers: {
      self_ms: floats(0, 0, 2, 0, 0, 0, 1, 0.5),
      total_ms: floats(3.5, 2, 2, 0, 0, 0, 1, 0.5),
      share: floats(1, 0.6, 0.6, 0, 0, 0, 0.3, 0.1),
    },
    before: {
      self_ms: floats(0, 0, 4, 1, 1, 1, 3, NaN),
      total_ms: floats(10, 7, 4, 1, 1, 1, 3, NaN),
    },
  });

test("there are always four tabs, and a section of another one adds its own", () => {
  const names = (/** @type {any[]} */ sections, /** @type {any} */ views) =>
    tabsOf(sections, views).map((tab) => tab.name);
  assert.deepEqual(names([], null), ["layers", "options", "results", "machine"]);
  assert.deepEqual(names([section("mine", "mine")], { mine: {} }).at(-1), "mine");
  assert.equal(names([section("mine", "mine")], {}).length, 4);
});

test("a tab holds the sections that are known or always shown; a sheet is in none", () => {
  const sections = [
    section("roofline", "machine"),
    section("hardware", "machine", { place: "beside" }),
    section("formats", "options", { place: "segment", isAlwaysShown: true }),
    section("faster", "layers", { place: "sheet", isAlwaysShown: true }),
  ];
  const [layers, options, results, machine] = tabsOf(sections, { hardware: {} });
  const of = (/** @type {any} */ tab) => tab.sections.map((/** @type {any} */ one) => one.name);
  assert.deepEqual([layers, options, results, machine].map(of), [
    [],
    ["formats"],
    [],
    ["hardware"],
  ]);
  assert.deepEqual([layers.hasDetails, machine.hasDetails], [true, false]);
  assert.equal(tabsOf([], {})[3].hasDetails, false, "nor before anything of the machine is known");
});

test("a section that does not apply is a line in its tab, and no segment", () => {
  const sections = [
    section("formats", "options", { place: "segment", isAlwaysShown: true }),
    section("attention", "options", { place: "segment", isAlwaysShown: true }),
  ];
  const [, options] = tabsOf(sections, {}, { attention: "none in this model" });
  assert.deepEqual(options.absent, ["ATTENTION: none in this model"]);
  const alone = [section("text", "text", { isAlwaysShown: true })];
  assert.equal(tabsOf(alone, {}, { text: "none" }).length, 4, "a tab of its own is left out");
  assert.deepEqual(
    segmentsOf(options).map((one) => one.name),
    ["formats"],
  );
});

test("a section that names a segment is seen with it alone, one without a place always", () => {
  const sections = [
    section("formats", "options", { place: "segment", isAlwaysShown: true }),
    section("memory", "options", { place: "segment", isAlwaysShown: true }),
    section("limit", "options", { place: "memory", isAlwaysShown: true }),
    section("below", "options", { isAlwaysShown: true }),
    section("right", "options", { place: "beside", isAlwaysShown: true }),
  ];
  const [, options] = tabsOf(sections, {});
  const names = (/** @type {string} */ chosen) =>
    sectionsWith(options, chosen).map((one) => one.name);
  assert.deepEqual(names("memory"), ["memory", "limit", "below", "right"]);
  assert.deepEqual(names("formats"), ["formats", "below", "right"]);
});

test("the sentence is split into times, verdict and likely range", () => {
  assert.deepEqual(storyPieces("4.50 → 0.923 ms · 4.9 × faster · likely 4.3–5.4"), {
    before: "4.50",
    now: "0.923 ms",
    verdict: "4.9 × faster",
    likely: "likely 4.3–5.4",
  });
  assert.deepEqual(storyPieces("4.50 ms"), { before: "", now: "4.50 ms", verdict: "", likely: "" });
});

test("figures are of the model as it came only while no step is applied", () => {
  const fold = { label: "fold" };
  assert.equal(isAsItCame([]), true);
  assert.equal(isAsItCame([{ ...fold, isPending: true }]), true);
  assert.equal(isAsItCame([fold]), false, "also where its measurement failed");
  assert.equal(isAsItCame([{ ...fold, isLeaving: true }]), false);
});

test("the headline says that the recipe is measured until its first figure is known", () => {
  const chosen = { recipe: [{ label: "fold" }], status: "measuring" };
  const began = { recipe: [], status: "measuring" };
  assert.equal(firstWords(chosen), "measuring the recipe …");
  assert.equal(whoseFigures(chosen), "measuring the recipe …");
  assert.equal(whoseFigures({ ...chosen, status: "idle" }), "", "its measurement failed");
  assert.equal(firstWords(began), "measuring the first times …");
  assert.equal(whoseFigures(began), "as it came");
  assert.equal(firstWords({ ...began, status: "idle" }), "not measured yet");
});

test("a word is said before the running job, and alone once nothing runs", () => {
  const job = { status: "profiling", doing: "net" };
  assert.equal(lineText(job, "copied", true), "copied · profiling: net");
  assert.equal(lineText(job, "copied", false), "profiling: net");
  assert.equal(lineText(job, "", true), "profiling: net");
  assert.equal(lineText({ status: "idle", doing: "" }, "copied", false), "copied");
});

test("the strip tells the state, its reasons and how it was measured", () => {
  const state = /** @type {any} */ ({
    quality: { state: "busy", label: "Busy: sizes are rough", reasons: [["others took", "46%"]] },
    threads: 1,
    machine: "EPYC",
    status: "idle",
    waiting: false,
  });
  assert.equal(trustOf(state), "busy");
  assert.equal(trustLabel(state), "Busy: sizes are rough");
  assert.deepEqual(reasonsOf(state), [
    ["others took", "46%"],
    ["", "1 thread"],
    ["", "EPYC"],
  ]);
  assert.equal(trustLabel({ ...state, waiting: true }), "Waiting for quiet …");
  assert.equal(trustLabel({ ...state, quality: null }), "Not measured yet");
  assert.equal(trustLabel({ ...state, quality: null, status: "measuring" }), "Measuring …");
  assert.equal(trustOf({ ...state, quality: null }), "");
});

test("chips that do not fit leave room for the button that shows them", () => {
  assert.equal(fittingCount([50, 50, 50], 166, 40, 8), 3);
  assert.equal(fittingCount([50, 50, 50], 165, 40, 8), 2);
  assert.equal(fittingCount([50, 50, 50], 155, 40, 8), 1);
  assert.equal(fittingCount([50], 20, 40, 8), 0);
  assert.equal(fittingCount([], 20, 40, 8), 0);
});

test("a number has three digits, and zeros are kept", () => {
  const written = [4.5, 0.04567, 150.6, 9.999, 99.96, 1234.5, 0, 12.34, NaN, 0.00792, 2e-5].map(
    threeDigits,
  );
  assert.deepEqual(written, [
    "4.50",
    "0.0457",
    "151",
    "10.0",
    "100",
    "1235",
    "0",
    "12.3",
    "–",
    "0.0079",
    "< 0.0001",
  ]);
  assert.deepEqual(
    [1.311, 4.87, 211.4].map((times) => ratioText(times)),
    ["1.31", "4.9", "211"],
  );
  assert.equal(ratioText(1.311, 4.87), "1.3");
  const sizes = [999, 999_499, 999_600, 1.234e15].map(readableBytes);
  assert.deepEqual(sizes, ["999 B", "999 kB", "1 MB", "1230 TB"]);
});

test("a name is cut in its middle no further than its room asks for", () => {
  const measure = (/** @type {string} */ text) => 10 * [...text].length;
  const name = "stages.1.layers.0.convolution";
  assert.equal(fittedName(name, 290, measure), name);
  const cut = fittedName(name, 200, measure);
  assert.equal(measure(cut), 200);
  assert.ok(cut.includes("…") && cut.endsWith(".convolution") && cut.startsWith("stages"));
  assert.ok(measure(fittedName(name, 30, measure)) <= 30);
});

test("the strip of time lays each layer under its group, as wide as its time", () => {
  const parts = timeParts(
    unpackedProfile({
      workload: "net",
      layer: ["", "a", "a.x", "a.y", "b", "c"],
      parent: view(Int32Array.from([-1, 0, 1, 1, 0, 0])),
      numbers: { total_ms: view(Float32Array.from([10, 6, 4, 2, 4, 0.001])) },
    }),
  );
  const shown = parts.map(({ label, level, left, width }) => [
    label,
    level,
    Math.round(100 * left),
    Math.round(100 * width),
  ]);
  assert.deepEqual(shown, [
    ["net", 0, 0, 100],
    ["a", 1, 0, 60],
    ["x", 2, 0, 40],
    ["y", 2, 40, 20],
    ["b", 1, 60, 40],
  ]);
  assert.equal(levelsOf(parts), 3);
  assert.deepEqual(
    parts.map((part) => part.isGroup),
    [true, true, false, false, false],
  );
  assert.deepEqual(timeParts(unpackedProfile({})), []);
});

test("cores are counted with one decimal, and one of them is a core", () => {
  assert.deepEqual([0.9, 0.04, 1, 1.96].map(coresText), [
    "0.9 cores",
    "< 0.1 cores",
    "1 core",
    "2 cores",
  ]);
});

test("with an engine a layer says what it runs as, or whose row it is in", () => {
  const table = engineTable();
  const texts = table.layers.map((_, row) => runsAsText(table, row, true));
  assert.deepEqual(texts, [
    "5 as 2 calls",
    "4 as 1 call",
    "Conv + BN",
    "in row above",
    "",
    "in conv",
    "Gemm",
    "",
  ]);
  assert.equal(runsAsText(table, 3, false), "in a.conv");
  assert.deepEqual([isJoined(table, 3), isJoined(table, 4)], [true, false]);
  assert.deepEqual(
    [whyUnknown(table, "self_ms", 4), whyUnknown(table, "bound", 4)],
    ["in one node", ""],
  );
  const names = (/** @type {boolean} */ hasEngine) =>
    layerColumns(() => true, false, hasEngine).map((column) => column.name);
  assert.equal(names(true)[0], "runs_as");
  assert.ok(!names(false).includes("runs_as") && names(true).includes("kind"));
  const joined = unpackedProfile({ layer: ["", "a"], parent: view(Int32Array.from([-1, 0])) });
  assert.equal(isJoined(joined, 1), false, "a profile of an earlier version has no engine");
});

test("layers without a time of their own come last whichever way a column is sorted", () => {
  const table = engineTable();
  for (const name of ["now", "share", "faster"]) {
    const column = layerColumns(() => false, true, true).find((one) => one.name === name);
    const valueOf = (/** @type {number} */ row) => column?.value(table, row) ?? "";
    for (const isDown of [true, false])
      assert.deepEqual(sortedRows([2, 3, 4, 5, 6], valueOf, isDown).slice(2), [3, 4, 5], name);
  }
});

test("in place of a time that is not known stands why", () => {
  const text = (/** @type {string} */ layer) => timeBars(engineTable(), layer)[0].textContent;
  assert.equal(text("a.conv"), "before4.00 msnow2.00 ms");
  assert.equal(text("a.norm"), "before1.00 msin one node");
});
