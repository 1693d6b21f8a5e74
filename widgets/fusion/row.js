/** The columns of the fusion table: a switch, the layers of the site, and its figures. */

import { fresh, h, set } from "../shared/dom.js";
import { figureColumn } from "../shared/figure_column.js";
import { piecesOf, wordsOf } from "../shared/order.js";
import { partedPath } from "../shared/tree.js";

/** @typedef {import("./table.js").FusedPlace} FusedPlace */
/** @typedef {import("./table.js").FusionTable} FusionTable */
/** @typedef {import("./choice.js").FusionChoice} FusionChoice */
/** @typedef {import("../shared/grid.js").Column<FusionTable>} FusionColumn */

const LEAST_NAME = 270;

/** The least room of a site's layers. @param {number} width */
export function leastPlaceWidth(width) {
  return Math.min(LEAST_NAME, width * 0.45);
}

/**
 * @param {FusionTable} table @param {boolean} hasSwitches @param {() => FusionChoice} choice
 * @param {() => string} query @returns {FusionColumn[]}
 */
export function fusionColumns({ places, columns }, hasSwitches, choice, query) {
  const isOn = (/** @type {FusedPlace} */ { layers }) => choice().on.has(layers[0]);
  const stateOf = (/** @type {FusedPlace} */ site) =>
    `${isOn(site)} ${choice().asked.has(site.layers[0])}`;
  /** @type {FusionColumn} */
  const toggle = {
    name: "switch",
    label: "",
    hint: "whether it runs as one",
    width: 42,
    value: (_, row) => Number(isOn(places[row])),
    key: (_, row) => stateOf(places[row]),
    draw: (cell, _, row) => fresh(cell, switchOf(places[row], choice())),
  };
  /** @type {FusionColumn} */
  const name = {
    name: "layer",
    label: "layers, in the order of the model",
    width: 0,
    value: (_, row) => places[row].layers[0],
    key: (_, row) => `${isOn(places[row])} ${query()}`,
    draw(cell, _, row) {
      const site = places[row];
      set(cell, { title: [site.layers.join(" + "), site.reason].filter(Boolean).join("\n") });
      cell.style.gridColumnEnd = site.has_facts ? "" : "-1";
      fresh(cell, ...placeParts(site, isOn(site), marking(query())));
    },
  };
  /** @type {FusionColumn} */
  const runs = {
    name: "runs",
    label: "runs as",
    hint: "what runs in their stead: sort by it",
    width: 118,
    rank: 3,
    value: (_, row) => places[row].runs,
    key: query,
    draw(cell, _, row) {
      cell.title = places[row].runs;
      fresh(cell, ...marking(query())(places[row].runs || "–"));
    },
  };
  /** @type {FusionColumn} */
  const bars = {
    name: "bars",
    label: "",
    width: 100,
    rank: 4,
    value: (_, row) => places[row].ms ?? NaN,
    draw: (cell, _, row) =>
      set(fresh(cell, ...places[row].bars.map(pairBar)), { "aria-hidden": "true" }),
  };
  const hasRuns = places.some((site) => site.runs);
  const figures = [...(hasRuns ? [runs] : []), bars, ...columns.map(figureColumn)];
  return [...(hasSwitches ? [toggle] : []), name, ...figures.map((one) => factual(one, places))];
}

/**
 * Where a site can never be one, its reason has the room of its figures.
 * @param {FusionColumn} column @param {FusedPlace[]} places @returns {FusionColumn}
 */
function factual(column, places) {
  return {
    ...column,
    draw(cell, table, row) {
      cell.hidden = !places[row].has_facts;
      column.draw(cell, table, row);
    },
  };
}

/** @param {FusedPlace} site @param {FusionChoice} choice */
function switchOf({ layers: [place], can_switch, on, off }, choice) {
  const isOn = choice.on.has(place);
  const attributes = {
    class: `pf-switch${choice.asked.has(place) ? " pf-asked" : ""}`,
    role: "switch",
    "aria-checked": String(isOn),
    "aria-disabled": can_switch ? null : "true",
    "aria-label": `fuse ${place}`,
    title: (isOn ? on : off).hint,
  };
  return h("span", attributes, h("i", {}));
}

/** A text with what a filter found in it. @param {string} query @returns {(text: string) => (Node | string)[]} */
function marking(query) {
  const words = wordsOf(query);
  return (text) =>
    piecesOf(text, words).map((piece) => (piece.isHit ? h("mark", {}, piece.text) : piece.text));
}

/**
 * The layers of a site, and below them its pattern and the reason why it is not fused.
 * @param {FusedPlace} site @param {boolean} isOn @param {(text: string) => (Node | string)[]} words
 */
function placeParts(site, isOn, words) {
  const parts = site.names.flatMap((name, place) => [
    place > 0 && h("i", { class: "pf-thread" }),
    h("span", { class: "pf-joint" }, ...words(name)),
  ]);
  const [head, tail] = partedPath(site.where, 2);
  const where = h(
    "span",
    { class: "pf-path" },
    h("span", { class: "pf-where" }, ...words(head)),
    h("span", { class: "pf-where-tail" }, ...words(tail)),
  );
  const joined = h("span", { class: `pf-joined pf-as-${isOn ? "one" : site.look}` }, ...parts);
  const { reason } = isOn ? site.on : site.off;
  return [
    h("div", { class: "pf-joints" }, site.where && where, joined),
    h(
      "div",
      { class: "pf-place-words" },
      ...words(site.pattern),
      reason && h("span", {}, ` · ${reason}`),
    ),
  ];
}

/** Apart above as one, a share of the longest time of all sites. @param {[number, string]} bar */
function pairBar([share, look]) {
  const style = `width: ${(100 * share).toFixed(1)}%`;
  return h("i", { class: `pf-pair-bar pf-pair-${look}`, style });
}
