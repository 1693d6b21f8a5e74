/**
 * A row of the fusion table: a switch, the layers joined where they run as one, and what that
 * brings.
 */

import { fresh, h, set } from "../shared/dom.js";
import {
  fusionErrorText,
  fusionSpeedText,
  isSlower,
  reasonText,
  savedText,
  standingWords,
  timesText,
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
    name: "ms",
    label: "ms apart → one",
    hint: "a call of the layers as they are, and of what runs in their stead, timed in turn: sort by the first",
    width: 118,
    isNumber: true,
    rank: 5,
  },
  {
    name: "speed",
    label: "times as fast",
    hint: "as one against apart: sort by it",
    width: 108,
    isNumber: true,
    rank: 6,
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
  ms: timesText,
  speed: fusionSpeedText,
  saved: savedText,
  error: fusionErrorText,
};
const LEAST_NAME = 270;
const SWITCH = 42;

/**
 * The columns that there is room for, in their order.
 * @param {number} width @param {boolean} hasRuns whether any place runs as one @returns
 * {FusionColumn[]}
 */
export function fittingFusionColumns(width, hasRuns) {
  let room = width - SWITCH - Math.min(LEAST_NAME, width * 0.45);
  const kept = FUSION_COLUMNS.filter((column) => hasRuns || column.name !== "runs")
    .sort((one, other) => other.rank - one.rank)
    .filter((column) => {
      room -= column.width;
      return room >= 0;
    });
  return FUSION_COLUMNS.filter((column) => kept.includes(column));
}

/**
 * @param {HTMLElement} element @param {FusedPlace} one @param {FusionColumn[]} columns
 * @param {{ isOn: boolean, isAsked: boolean, hasSwitch: boolean, longestMs: number, words: (text:
 * string) => (Node | string)[] }} how
 */
export function drawPlace(element, one, columns, how) {
  const hasFacts = one.canSwitch || Number.isFinite(one.speedup);
  const place = placeCell(one, how);
  if (!hasFacts)
    set(place, {
      style: `grid-column: ${how.hasSwitch ? 2 : 1} / -1`,
      "aria-colspan": columns.length + 1,
    });
  fresh(
    element,
    how.hasSwitch && switchCell(one, how),
    place,
    ...(hasFacts ? columns.map((column) => factCell(one, column, how)) : []),
  );
}

/** @param {FusedPlace} one @param {{ isOn: boolean, isAsked: boolean }} how */
function switchCell(one, { isOn, isAsked }) {
  const hint = one.canSwitch
    ? isOn
      ? "runs as one; a click takes it apart"
      : `${standingWords(one, isOn)}; a click fuses it`
    : `cannot be switched on: ${one.reason || "nothing fuses it here"}`;
  const given = {
    class: `pf-switch${isAsked ? " pf-asked" : ""}`,
    role: "switch",
    "aria-checked": String(isOn),
    "aria-disabled": one.canSwitch ? null : "true",
  };
  return h(
    "div",
    { class: "pf-cell pf-is-switch", role: "gridcell" },
    h("span", { ...given, "aria-label": `fuse ${one.place}`, title: hint }, h("i", {})),
  );
}

/**
 * The layers, and under them what they make and why they stay apart.
 * @param {FusedPlace} one @param {{ isOn: boolean, words: (text: string) => (Node | string)[] }}
 * how
 */
function placeCell(one, { isOn, words }) {
  const parts = one.names.flatMap((name, place) => [
    place > 0 && h("i", { class: "pf-thread" }),
    h("span", { class: "pf-joint" }, ...words(name)),
  ]);
  const look = isOn
    ? "pf-as-one"
    : isSlower(one)
      ? "pf-as-slower"
      : one.canSwitch
        ? "pf-as-off"
        : "pf-as-apart";
  const [head, tail] = partedPath(one.where, 2);
  const where =
    one.where &&
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
  const reason = reasonText(one, isOn) && h("span", {}, ` · ${reasonText(one, isOn)}`);
  return h(
    "div",
    {
      class: "pf-cell pf-is-layer",
      role: "rowheader",
      title: [one.layers.join(" + "), one.reason].filter(Boolean).join("\n"),
    },
    joints,
    h("div", { class: "pf-place-words" }, ...words(one.pattern), reason),
  );
}

/**
 * @param {FusedPlace} one @param {FusionColumn} column @param {{ longestMs: number, isOn: boolean,
 * words: (text: string) => (Node | string)[] }} how
 */
function factCell(one, column, how) {
  const given = {
    class: `pf-cell pf-is-${column.name}${column.isNumber ? " pf-number" : ""}`,
    role: "gridcell",
  };
  if (column.name === "bars")
    return h("div", { ...given, "aria-hidden": "true" }, ...pairedBars(one, how.longestMs));
  if (column.name === "runs")
    return h("div", { ...given, title: one.runs || null }, ...how.words(one.runs || "–"));
  const text = FUSION_TEXTS[column.name]?.(one) || "–";
  const look =
    column.name === "speed" && Number.isFinite(one.speedup)
      ? one.speedup < 0.995
        ? " pf-is-bad"
        : one.speedup > 1.005
          ? " pf-is-good"
          : ""
      : "";
  return h(
    "div",
    {
      ...given,
      class: given.class + (text === "–" ? " pf-nothing" : look),
      title: column.name === "speed" ? one.reason || null : null,
    },
    text,
  );
}

/**
 * Apart above, as one below it; both against the longest of all places.
 * @param {FusedPlace} one @param {number} longestMs
 */
function pairedBars(one, longestMs) {
  const bar = (/** @type {number} */ ms, /** @type {string} */ look) => {
    const mark = h("i", { class: `pf-pair-bar ${look}` });
    mark.style.width = `${((100 * ms) / longestMs).toFixed(1)}%`;
    return mark;
  };
  const asOne = one.speedup < 0.995 ? "pf-pair-slower" : "pf-pair-one";
  return [
    one.apartMs > 0 && bar(one.apartMs, "pf-pair-apart"),
    one.fusedMs > 0 && bar(one.fusedMs, asOne),
  ].filter((mark) => mark !== false);
}
