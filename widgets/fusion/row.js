/** The columns of the fusion table: a switch, the layers of the site, and its figures. */

import { fresh, h, set } from "../shared/dom.js";
import { piecesOf, wordsOf } from "../shared/order.js";
import { partedPath } from "../shared/tree.js";
import {
  fusionErrorText,
  fusionSpeedText,
  isSlower,
  reasonText,
  savedText,
  standingWords,
} from "./table.js";

/** @typedef {import("./table.js").FusedPlace} FusedPlace */
/** @typedef {import("./table.js").FusionTable} FusionTable */
/** @typedef {import("../shared/grid.js").Column<FusionTable>} FusionColumn */

const LEAST_NAME = 270;

/** The least room of a site's layers. @param {number} width */
export function leastPlaceWidth(width) {
  return Math.min(LEAST_NAME, width * 0.45);
}

/** @type {FusionColumn} */
const BARS = {
  name: "bars",
  label: "",
  width: 100,
  rank: 4,
  value: ({ places }, row) => places[row].apartMs,
  draw(cell, table, row) {
    cell.hidden = !hasFacts(table.places[row]);
    set(cell, { "aria-hidden": "true" });
    fresh(cell, ...pairedBars(table.places[row], table.longestMs || 1));
  },
};
const FIGURES = [
  figureColumn(
    { name: "speed", label: "times as fast", width: 108, rank: 5 },
    "as one against apart, timed in turn without the rest of the model: sort by it",
    (site) => site.speedup,
    fusionSpeedText,
  ),
  figureColumn(
    { name: "saved", label: "saves", width: 74, rank: 2 },
    "what no longer goes through memory at each call: sort by it",
    (site) => site.savedBytes,
    savedText,
  ),
  figureColumn(
    { name: "error", label: "error", width: 66, rank: 1 },
    "relative distance of its answer from that of the layers apart: sort by it",
    (site) => site.error,
    fusionErrorText,
  ),
];

/**
 * @param {boolean} hasRuns whether any place runs as one @param {boolean} hasSwitches
 * @param {() => import("./choice.js").FusionChoice} choice @param {() => string} query
 * @returns {FusionColumn[]}
 */
export function fusionColumns(hasRuns, hasSwitches, choice, query) {
  const columns = [placeColumn(choice, query), hasRuns && runsColumn(query), BARS, ...FIGURES];
  const all = hasSwitches ? [switchColumn(choice), ...columns] : columns;
  return all.filter((column) => column !== false);
}

/** Where a site can never be one, its reason has the room of its figures. @param {FusedPlace} site */
function hasFacts(site) {
  return site.canSwitch || Number.isFinite(site.speedup);
}

/** @param {() => import("./choice.js").FusionChoice} choice @returns {FusionColumn} */
function switchColumn(choice) {
  const stateOf = (/** @type {FusedPlace} */ { place }) => {
    const { on, asked } = choice();
    return { isOn: on.has(place), isAsked: asked.has(place) };
  };
  return {
    name: "switch",
    label: "",
    hint: "whether it runs as one",
    width: 42,
    value: ({ places }, row) => Number(stateOf(places[row]).isOn),
    key: ({ places }, row) => JSON.stringify(stateOf(places[row])),
    draw: (cell, { places }, row) => drawSwitch(cell, places[row], stateOf(places[row])),
  };
}

/**
 * @param {HTMLElement} cell @param {FusedPlace} site @param {{ isOn: boolean, isAsked: boolean }}
 * state
 */
function drawSwitch(cell, site, { isOn, isAsked }) {
  const hint = site.canSwitch
    ? isOn
      ? "runs as one; a click takes it apart"
      : `${standingWords(site, isOn)}; a click fuses it`
    : `cannot be switched on: ${site.reason || "nothing fuses it here"}`;
  const attributes = {
    class: `pf-switch${isAsked ? " pf-asked" : ""}`,
    role: "switch",
    "aria-checked": String(isOn),
    "aria-disabled": site.canSwitch ? null : "true",
    "aria-label": `fuse ${site.place}`,
    title: hint,
  };
  fresh(cell, h("span", attributes, h("i", {})));
}

/**
 * The cell of a site: its layers, and below them its pattern and the reason why it is not fused.
 * @param {() => import("./choice.js").FusionChoice} choice @param {() => string} query @returns
 * {FusionColumn}
 */
function placeColumn(choice, query) {
  const isOn = (/** @type {FusedPlace} */ { place }) => choice().on.has(place);
  return {
    name: "layer",
    label: "layers, in the order of the model",
    width: 0,
    value: ({ layers }, row) => layers[row],
    key: ({ places }, row) => `${isOn(places[row])} ${query()}`,
    draw(cell, { places }, row) {
      const site = places[row];
      const title = [site.layers.join(" + "), site.reason].filter(Boolean).join("\n");
      set(cell, { title });
      cell.style.gridColumnEnd = hasFacts(site) ? "" : "-1";
      fresh(cell, ...placeParts(site, isOn(site), marking(query())));
    },
  };
}

/** A text with what a filter found in it. @param {string} query @returns {(text: string) => (Node | string)[]} */
function marking(query) {
  const words = wordsOf(query);
  return (text) =>
    piecesOf(text, words).map((piece) => (piece.isHit ? h("mark", {}, piece.text) : piece.text));
}

/** @param {FusedPlace} site @param {boolean} isOn @param {(text: string) => (Node | string)[]} words */
function placeParts(site, isOn, words) {
  const parts = site.names.flatMap((name, place) => [
    place > 0 && h("i", { class: "pf-thread" }),
    h("span", { class: "pf-joint" }, ...words(name)),
  ]);
  const apart = site.canSwitch ? "pf-as-off" : "pf-as-apart";
  const look = isOn ? "pf-as-one" : isSlower(site) ? "pf-as-slower" : apart;
  const [head, tail] = partedPath(site.where, 2);
  const where = h(
    "span",
    { class: "pf-path" },
    h("span", { class: "pf-where" }, ...words(head)),
    h("span", { class: "pf-where-tail" }, ...words(tail)),
  );
  const joined = h("span", { class: `pf-joined ${look}` }, ...parts);
  const reason = reasonText(site, isOn) && h("span", {}, ` · ${reasonText(site, isOn)}`);
  return [
    h("div", { class: "pf-joints" }, site.where && where, joined),
    h("div", { class: "pf-place-words" }, ...words(site.pattern), reason),
  ];
}

/** @param {() => string} query @returns {FusionColumn} */
function runsColumn(query) {
  return {
    name: "runs",
    label: "runs as",
    hint: "what runs in their stead: sort by it",
    width: 118,
    rank: 3,
    value: ({ places }, row) => places[row].runs,
    key: query,
    draw(cell, { places }, row) {
      const site = places[row];
      cell.hidden = !hasFacts(site);
      cell.title = site.runs;
      fresh(cell, ...marking(query())(site.runs || "–"));
    },
  };
}

/**
 * @param {{ name: string, label: string, width: number, rank: number }} column @param {string} hint
 * @param {(site: FusedPlace) => number} number @param {(site: FusedPlace) => string} written
 * @returns {FusionColumn}
 */
function figureColumn(column, hint, number, written) {
  return {
    ...column,
    hint,
    isNumber: true,
    value: ({ places }, row) => number(places[row]),
    draw(cell, { places }, row) {
      const site = places[row];
      const text = written(site);
      const speedup = column.name === "speed" && text ? site.speedup : 1;
      cell.hidden = !hasFacts(site);
      cell.title = column.name === "speed" ? site.reason : "";
      cell.textContent = text || "–";
      cell.classList.toggle("pf-nothing", !text);
      cell.classList.toggle("pf-is-bad", speedup < 0.995);
      cell.classList.toggle("pf-is-good", speedup > 1.005);
    },
  };
}

/**
 * Two bars, separate above fused, relative to the longest time of all sites.
 * @param {FusedPlace} site @param {number} longestMs
 */
function pairedBars(site, longestMs) {
  const bar = (/** @type {number} */ ms, /** @type {string} */ look) => {
    const mark = h("i", { class: `pf-pair-bar ${look}` });
    mark.style.width = `${((100 * ms) / longestMs).toFixed(1)}%`;
    return mark;
  };
  const asOne = site.speedup < 0.995 ? "pf-pair-slower" : "pf-pair-one";
  return [
    site.apartMs > 0 && bar(site.apartMs, "pf-pair-apart"),
    site.fusedMs > 0 && bar(site.fusedMs, asOne),
  ].filter((mark) => mark !== false);
}
