/** A bar in a cell, in the colour of its tone, with its likely range and what it was before. */

import { h } from "./dom.js";

/**
 * Shares of the cell's width.
 * @typedef {{ now: number, likely?: [number, number] | null, before?: number }} Bar
 */

/** @param {Bar} bar @param {string} [tone] */
export function barElement({ now, likely, before }, tone = "") {
  const percent = (/** @type {number} */ share) => `${(100 * share).toFixed(2)}%`;
  const [from, to] = likely ?? [0, 0];
  return h(
    "span",
    { class: `pf-cell-bar pf-cell-bar-${tone}`, "aria-hidden": "true" },
    h("b", { style: `width: ${percent(now)}` }),
    before && h("s", { style: `left: ${percent(before)}` }),
    likely && h("i", { style: `left: ${percent(from)}; width: ${percent(to - from)}` }),
  );
}
