/** The columns of the layer table: content, sort key, and which are dropped first. */

import { boundSign, boundWord, exactBound } from "./bounds.js";
import { fresh, h } from "../shared/dom.js";
import {
  ratioText,
  readableBytes,
  readableCount,
  readablePercent,
  threeDigits,
} from "../shared/format.js";
import { isBranch, ownName } from "../shared/tree.js";
import { isJoined, numberAt, whyUnknown } from "../shared/unpack.js";

/** @typedef {import("../shared/unpack.js").LayerTable} LayerTable */

/** @typedef {import("../shared/grid.js").Column<LayerTable>} Column */

const ENGINE_ROW = "engine itself"; // `records/layer_profile.py`

/**
 * The columns of a profile; those of the time before where there is one.
 * @param {() => boolean} isTree whether a branch shows the time of its descendants too
 * @param {boolean} hasBefore @param {boolean} [hasEngine] whether an engine runs the layers
 * @returns {Column[]}
 */
export function layerColumns(isTree, hasBefore, hasEngine = false) {
  const before = [timeColumn("before", "Before, ms", 100, 74, isTree)];
  const kind = textColumn(
    "kind",
    "Kind",
    104,
    hasEngine ? 54 : 66,
    (table, row) => table.kind[row],
  );
  return [
    ...(hasEngine ? [runsAsColumn(isTree)] : [kind]),
    ...(hasBefore ? before : []),
    BAR,
    timeColumn("now", hasBefore ? "Now, ms" : "Time, ms", 88, 100, isTree),
    ...(hasBefore ? [fasterColumn(isTree)] : []),
    BOUND,
    ...(hasEngine ? [kind] : []),
    ...COUNTS,
  ];
}

/** @type {Column} */
const BOUND = {
  name: "bound",
  label: "Limited by",
  width: 104,
  rank: 90,
  hint: "what keeps it from being faster: arithmetic, memory, or the cost of calling it",
  value: (table, row) => boundWord(boundOf(table, row)),
  draw(cell, table, row) {
    const bound = boundOf(table, row);
    const why = bound || isJoined(table, row) ? "" : whyUnknown(table, "bound", row);
    cell.title = why || exactBound(bound);
    cell.classList.toggle("pf-nothing", Boolean(why));
    fresh(cell, boundSign(bound), h("span", {}, why ? "–" : boundWord(bound)));
  },
};

/** The layers of a group have different limits. @param {LayerTable} table @param {number} row */
function boundOf(table, row) {
  return isBranch(table.end, row) ? "" : table.bound[row];
}

/** Now over before, on the scale of the longest; hatched where the machine was busy. */
const BAR = /** @type {Column} */ ({
  name: "bar",
  label: "",
  width: 94,
  rank: 98,
  value: (table, row) => numberAt(table, "self_ms", row),
  draw(cell, table, row) {
    const most = longest(table);
    const bars = isBranch(table.end, row)
      ? []
      : [
          table.before && barOf(table.before.self_ms[row] / most, "before"),
          barOf(numberAt(table, "self_ms", row) / most, table.bound[row] || "unknown"),
        ];
    cell.classList.toggle("pf-hatched", table.isUncertain);
    fresh(cell, ...bars);
  },
});

/** @type {Column[]} */
const COUNTS = [
  numberColumn("share", "Share", 72, 60, "part of the whole model's time", readablePercent),
  numberColumn("total_flops", "FLOP", 72, 58, "floating-point operations", readableCount),
  numberColumn("total_parameters", "Weights", 72, 56, "parameters", readableCount),
  numberColumn("total_bytes", "Read, written", 104, 40, "bytes moved", readableBytes),
  numberColumn("peak_bytes", "Peak memory", 104, 30, "the most held while it ran", readableBytes),
  textColumn("output", "Output", 108, 20, (table, row) => table.output[row], "shape"),
  numberColumn("roof_share", "Of ceiling", 76, 50, "how near it comes to its roof", wholePercent),
];

/**
 * The least room of the names: all of it that those of the tree ask for, before bars and buttons
 * have theirs, up to half of the table; for the whole paths of a list a usual room.
 * @param {number} width @param {number} [inTree] @param {number} [inList] what they ask for
 */
export function nameWidthIn(width, inTree = 0, inList = Infinity) {
  const usual = Math.min(184, Math.max(110, Math.round(width * 0.38)));
  return Math.max(110, Math.min(inList, usual), Math.min(inTree, Math.round(width * 0.5)));
}

/**
 * The rows whose names in the tree have the most letters, an indent being two: measuring thousands
 * would hold up the page. The model itself has its recipe in its name, and the strip to read it in.
 * @param {LayerTable} table @param {number} count
 */
export function longestNames({ layers, parent, depth }, count) {
  const letters = layers.map((layer, row) => {
    const under = parent[row] >= 0 ? layers[parent[row]] : "";
    return ownName(layer, under).length + 2 * depth[row];
  });
  const inside = [...layers.keys()].filter((row) => parent[row] >= 0);
  const rows = inside.sort((first, second) => letters[second] - letters[first]);
  return rows.slice(0, count);
}

/**
 * A bar's length as a share of the cell; positive values are always visible.
 * @param {number} value @param {number} whole
 */
export function barLength(value, whole) {
  if (!(value > 0) || !(whole > 0)) return 0;
  return Math.min(1, Math.max(0.01, value / whole));
}

/**
 * A row's time: its own, or in the tree with all below it; NaN if unknown.
 * @param {LayerTable} table @param {number} row @param {boolean} isTree @param {boolean} isBefore
 */
export function timeOf(table, row, isTree, isBefore) {
  if (!isBefore && whyUnknown(table, "self_ms", row)) return NaN;
  const columns = isBefore ? table.before : table.numbers;
  const name = isTree && isBranch(table.end, row) ? "total_ms" : "self_ms";
  return columns?.[name]?.[row] ?? NaN;
}

/** @param {number} share @param {string} look */
function barOf(share, look) {
  const bar = h("i", { class: `pf-bar pf-${look}`, "aria-hidden": "true" });
  bar.style.width = `${(100 * barLength(share, 1)).toFixed(1)}%`;
  return bar;
}

/** @param {number} ratio */
function wholePercent(ratio) {
  return Number.isNaN(ratio) ? "–" : `${Math.round(100 * ratio)}%`;
}

/**
 * @param {string} name @param {string} label @param {number} width @param {number} rank
 * @param {(table: LayerTable, row: number) => string} value @param {string} [hint] @returns
 * {Column}
 */
function textColumn(name, label, width, rank, value, hint) {
  /** @type {Column["draw"]} */
  const draw = (cell, table, row) => {
    cell.textContent = value(table, row) ?? "";
    cell.title = cell.textContent;
  };
  return { name, label, width, rank, hint, value: (table, row) => value(table, row) ?? "", draw };
}

/**
 * @param {string} name @param {string} label @param {number} width @param {number} rank @param
 * {string} hint @param {(value: number) => string} written @returns {Column}
 */
function numberColumn(name, label, width, rank, hint, written) {
  const whyNot = (/** @type {LayerTable} */ table, /** @type {number} */ row) =>
    whyUnknown(table, name === "share" ? "self_ms" : name, row);
  /** @type {Column["draw"]} */
  const draw = (cell, table, row) => {
    const why = whyNot(table, row);
    if (why) return drawUnknown(cell, isJoined(table, row) ? "" : "–", why);
    cell.title = "";
    const text = written(numberAt(table, name, row));
    cell.classList.toggle("pf-nothing", text === "–" || text === "0");
    cell.textContent = text;
  };
  const value = (/** @type {LayerTable} */ table, /** @type {number} */ row) =>
    whyNot(table, row) ? NaN : numberAt(table, name, row);
  return { name, label, width, rank, hint, isNumber: true, value, draw };
}

/**
 * @param {string} name @param {string} label @param {number} width @param {number} rank
 * @param {() => boolean} isTree @returns {Column}
 */
function timeColumn(name, label, width, rank, isTree) {
  const isBefore = name === "before";
  return {
    name,
    label,
    width,
    rank,
    hint: "a group's time is that of all its layers (total ms), a layer's its own (self ms)",
    isNumber: true,
    value: (table, row) => timeOf(table, row, false, isBefore),
    key: () => String(isTree()),
    draw(cell, table, row) {
      const why = isBefore ? "" : whyUnknown(table, "self_ms", row);
      if (why) return drawUnknown(cell, isJoined(table, row) ? "joined" : "–", why);
      const text = threeDigits(timeOf(table, row, isTree(), isBefore));
      const isRough = table.isUncertain && !isBefore && text !== "–";
      cell.classList.toggle("pf-whole", isTree() && isBranch(table.end, row));
      cell.classList.toggle("pf-nothing", text === "–" || isBefore || isRough);
      cell.title = isRough ? "timed roughly" : "";
      cell.textContent = isRough ? `≈ ${text}` : text;
    },
  };
}

/** How many times as fast as before. @param {() => boolean} isTree @returns {Column} */
function fasterColumn(isTree) {
  const ratio = (/** @type {LayerTable} */ table, /** @type {number} */ row, isWhole = false) => {
    const times = timeOf(table, row, isWhole, true) / timeOf(table, row, isWhole, false);
    return Number.isFinite(times) && times > 0 ? times : NaN;
  };
  return {
    name: "faster",
    label: "Faster",
    width: 72,
    rank: 94,
    hint: "its time before, over its time now",
    isNumber: true,
    value: (table, row) => ratio(table, row),
    key: () => String(isTree()),
    draw(cell, table, row) {
      const times = ratio(table, row, isTree());
      if (isJoined(table, row)) return drawUnknown(cell, "", whyUnknown(table, "self_ms", row));
      const isKnown = !Number.isNaN(times);
      cell.classList.toggle("pf-whole", isTree() && isBranch(table.end, row));
      cell.classList.toggle("pf-nothing", !isKnown || table.isUncertain);
      cell.title = table.isUncertain ? "cannot be told: the machine was busy" : "";
      cell.textContent = !isKnown ? "–" : table.isUncertain ? "?" : `${ratioText(times)} ×`;
    },
  };
}

/**
 * The operators that the engine runs a layer as; of a group, in how many calls.
 * @param {() => boolean} isTree @returns {Column}
 */
function runsAsColumn(isTree) {
  return {
    name: "runs_as",
    label: "Runs as",
    width: 116,
    most: 200,
    rank: 92,
    hint: "the operators that the engine runs as one call",
    value: (table, row) => runsAsText(table, row, false),
    key: () => String(isTree()),
    draw(cell, table, row) {
      const text = runsAsText(table, row, isTree());
      cell.textContent = text;
      cell.title = whyUnknown(table, "self_ms", row) || table.runsAs[row] || text;
      cell.classList.toggle("pf-nothing", isJoined(table, row));
    },
  };
}

/** @param {LayerTable} table @param {number} row @param {boolean} isTree */
export function runsAsText(table, row, isTree) {
  if (isBranch(table.end, row)) return isTree ? callsText(table, row) : table.runsAs[row];
  const into = table.joinedInto[row] ?? -1;
  if (into < 0) return (table.runsAs[row] ?? "").replaceAll("BatchNorm", "BN");
  const isBeside = isTree && into < row && table.parent[into] === table.parent[row];
  const isAbove =
    isBeside && table.joinedInto.slice(into + 1, row).every((other) => other === into);
  const under = isTree && isBeside ? table.layers[table.parent[row]] : "";
  return isAbove ? "in row above" : `in ${ownName(table.layers[into], under)}`;
}

/** "4 as 2 calls". @param {LayerTable} table @param {number} row */
function callsText(table, row) {
  let layers = 0;
  let calls = 0;
  for (let inner = row; inner < table.end[row]; inner += 1) {
    if (!isBranch(table.end, inner) && table.layers[inner] !== ENGINE_ROW) layers += 1;
    if (table.runsAs[inner]) calls += 1;
  }
  return `${layers} as ${calls} ${calls === 1 ? "call" : "calls"}`;
}

/** A cell without a figure, and why. @param {HTMLElement} cell @param {string} text @param {string} why */
function drawUnknown(cell, text, why) {
  cell.classList.remove("pf-whole");
  cell.classList.add("pf-nothing");
  cell.textContent = text;
  cell.title = why;
}

/** @type {WeakMap<LayerTable, number>} */
const LONGEST = new WeakMap();

/** The longest time of a layer, now and before, computed once. @param {LayerTable} table */
function longest(table) {
  const known = LONGEST.get(table);
  if (known !== undefined) return known;
  let most = 0;
  for (const column of [table.numbers.self_ms, table.before?.self_ms])
    for (const value of column ?? []) if (value > most) most = value;
  LONGEST.set(table, most);
  return most;
}
