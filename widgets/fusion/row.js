/** A row of the fusion table: a switch, the layers of the site, and its figures. */

import { fresh, h, set } from "../shared/dom.js";
import {
  fusionErrorText,
  fusionSpeedText,
  isSlower,
  reasonText,
  savedText,
  standingWords,
} from "./table.js";
import { partedPath } from "../shared/tree.js";

/** @typedef {import("./table.js").FusedPlace} FusedPlace */
/**
 * @typedef {{ name: string, label: string, hint: string, width: number, isNumber?: boolean, rank:
 * number }} FusionColumn `rank`: the lowest gives way first
 */

/** @type {FusionColumn[]} */
export const FUSION_COLUMNS = [
  {
    name: "runs",
    label: "runs as",
    hint: "what runs in their stead: sort by it",
    width: 118,
    rank: 3,
  },
  { name: "bars", label: "", hint: "", width: 100, rank: 4 },
  {
    name: "speed",
    label: "times as fast",
    hint: "as one against apart, timed in turn without the rest of the model: sort by it",
    width: 108,
    isNumber: true,
    rank: 5,
  },
  {
    name: "saved",
    label: "saves",
    hint: "what no longer goes through memory at each call: sort by it",
    width: 74,
    isNumber: true,
    rank: 2,
  },
  {
    name: "error",
    label: "error",
    hint: "relative distance of its answer from that of the layers apart: sort by it",
    width: 66,
    isNumber: true,
    rank: 1,
  },
];
/** @type {Record<string, (one: FusedPlace) => string>} */
const FUSION_TEXTS = {
  speed: fusionSpeedText,
  saved: savedText,
  error: fusionErrorText,
};
const LEAST_NAME = 270;
const SWITCH = 42;

/**
 * The columns that fit, in their order.
 * @param {number} width @param {boolean} hasRuns whether any place runs as one @returns
 * {FusionColumn[]}
 */
export function fittingFusionColumns(width, hasRuns) {
  let room = width - SWITCH - Math.min(LEAST_NAME, width * 0.45);
  const kept = FUSION_COLUMNS.filter((column) => hasRuns || column.name !== "runs")
    .sort((first, second) => second.rank - first.rank)
    .filter((column) => {
      room -= column.width;
      return room >= 0;
    });
  return FUSION_COLUMNS.filter((column) => kept.includes(column));
}

/**
 * @param {HTMLElement} element @param {FusedPlace} site @param {FusionColumn[]} columns
 * @param {{ isOn: boolean, isAsked: boolean, hasSwitch: boolean, longestMs: number, words: (text:
 * string) => (Node | string)[] }} how
 */
export function drawPlace(element, site, columns, how) {
  const hasFacts = site.canSwitch || Number.isFinite(site.speedup);
  const place = placeCell(site, how);
  if (!hasFacts)
    set(place, {
      style: `grid-column: ${how.hasSwitch ? 2 : 1} / -1`,
      "aria-colspan": columns.length + 1,
    });
  fresh(
    element,
    how.hasSwitch && switchCell(site, how),
    place,
    ...(hasFacts ? columns.map((column) => factCell(site, column, how)) : []),
  );
}

/** @param {FusedPlace} site @param {{ isOn: boolean, isAsked: boolean }} how */
function switchCell(site, { isOn, isAsked }) {
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
  };
  return h(
    "div",
    { class: "pf-cell pf-is-switch", role: "gridcell" },
    h("span", { ...attributes, "aria-label": `fuse ${site.place}`, title: hint }, h("i", {})),
  );
}

/**
 * The cell of a site: its layers, and below them its pattern and the reason why it is not fused.
 * @param {FusedPlace} site @param {{ isOn: boolean, words: (text: string) => (Node | string)[] }}
 * how
 */
function placeCell(site, { isOn, words }) {
  const parts = site.names.flatMap((name, place) => [
    place > 0 && h("i", { class: "pf-thread" }),
    h("span", { class: "pf-joint" }, ...words(name)),
  ]);
  const look = isOn
    ? "pf-as-one"
    : isSlower(site)
      ? "pf-as-slower"
      : site.canSwitch
        ? "pf-as-off"
        : "pf-as-apart";
  const [head, tail] = partedPath(site.where, 2);
  const where =
    site.where &&
    h(
      "span",
      { class: "pf-path" },
      h("span", { class: "pf-where" }, ...words(head)),
      h("span", { class: "pf-where-tail" }, ...words(tail)),
    );
  const joints = h(
    "div",
    { class: "pf-joints" },
    where,
    h("span", { class: `pf-joined ${look}` }, ...parts),
  );
  const reason = reasonText(site, isOn) && h("span", {}, ` · ${reasonText(site, isOn)}`);
  return h(
    "div",
    {
      class: "pf-cell pf-is-layer",
      role: "rowheader",
      title: [site.layers.join(" + "), site.reason].filter(Boolean).join("\n"),
    },
    joints,
    h("div", { class: "pf-place-words" }, ...words(site.pattern), reason),
  );
}

/**
 * @param {FusedPlace} site @param {FusionColumn} column @param {{ longestMs: number, isOn: boolean,
 * words: (text: string) => (Node | string)[] }} how
 */
function factCell(site, column, how) {
  const attributes = {
    class: `pf-cell pf-is-${column.name}${column.isNumber ? " pf-number" : ""}`,
    role: "gridcell",
  };
  if (column.name === "bars")
    return h("div", { ...attributes, "aria-hidden": "true" }, ...pairedBars(site, how.longestMs));
  if (column.name === "runs")
    return h("div", { ...attributes, title: site.runs || null }, ...how.words(site.runs || "–"));
  const text = FUSION_TEXTS[column.name]?.(site) || "–";
  const look =
    column.name === "speed" && Number.isFinite(site.speedup)
      ? site.speedup < 0.995
        ? " pf-is-bad"
        : site.speedup > 1.005
          ? " pf-is-good"
          : ""
      : "";
  return h(
    "div",
    {
      ...attributes,
      class: attributes.class + (text === "–" ? " pf-nothing" : look),
      title: column.name === "speed" ? site.reason || null : null,
    },
    text,
  );
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
