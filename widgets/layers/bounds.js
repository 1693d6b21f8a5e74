/** What limits a layer, as a shape and in words: a colour never stands alone. */

import { h } from "../shared/dom.js";

/** As on the roofline. @type {Record<string, string>} */
export const BOUND_SHAPES = { compute: "●", memory: "■", overhead: "▲" };

/** @type {Record<string, string>} */
export const BOUND_WORDS = { compute: "arithmetic", memory: "memory", overhead: "call cost" };

/** @type {Record<string, string>} */
const EXACT = {
  compute: "bound by compute: the arithmetic units are busy",
  memory: "bound by memory: it waits for reading and writing",
  overhead: "bound by overhead: calling its operators takes longer than running them",
};

/** The shape of a layer's bound. @param {string | null | undefined} bound */
export function boundSign(bound) {
  return bound
    ? h("i", { class: `pf-sign pf-${bound}`, "aria-hidden": "true" }, BOUND_SHAPES[bound] ?? "◆")
    : null;
}

/** "compute" → "arithmetic". @param {string | null | undefined} bound */
export function boundWord(bound) {
  return bound ? (BOUND_WORDS[bound] ?? bound) : "";
}

/** The exact term, for a tooltip. @param {string | null | undefined} bound */
export function exactBound(bound) {
  return bound ? (EXACT[bound] ?? bound) : "";
}

/** The three limits with their shapes. */
export function boundLegend() {
  const items = Object.keys(BOUND_WORDS).map((bound) =>
    h("span", { title: exactBound(bound) }, boundSign(bound), ` ${boundWord(bound)}`),
  );
  return h("span", { class: "pf-bound-legend" }, "limited by ", ...items);
}
