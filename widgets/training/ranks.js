/** The processes of a training, a row each: what a rank computes, waits for and sends. */

import { h, s } from "../shared/dom.js";
import { barsOf, BAR_HEIGHT, BAR_WIDTH } from "./layout.js";

/** @typedef {import("./layout.js").Rank} Rank */

/** @param {string} title @param {Rank[]} ranks @returns {HTMLElement} */
export function rankTable(title, ranks) {
  const names = Object.keys(ranks[0].cells);
  const bars = barsOf(ranks);
  const rows = ranks.map(({ cells }, index) =>
    h(
      "tr",
      {},
      ...names.map((name) => h("td", {}, cells[name])),
      h("td", { class: "pf-chart" }, bar(bars[index])),
    ),
  );
  const head = names.map((name) => h("th", { scope: "col" }, name));
  return h(
    "table",
    { class: "pf-table", "aria-label": "ranks" },
    h("caption", {}, title),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        ...head,
        h("th", { scope: "col", class: "pf-chart" }, "of a step: computes, ", h("i", {}, "waits")),
      ),
    ),
    h("tbody", {}, ...rows),
  );
}

/** @param {{ computed: number, waited: number }} widths */
function bar({ computed, waited }) {
  const rect = (/** @type {Record<string, string | number>} */ place) =>
    s("rect", { y: 0, height: BAR_HEIGHT, ...place });
  return s(
    "svg",
    { class: "pf-train-rank", width: BAR_WIDTH, height: BAR_HEIGHT, "aria-hidden": "true" },
    rect({ x: 0, width: computed, class: "pf-train-computes" }),
    rect({ x: computed, width: waited, class: "pf-train-waits" }),
  );
}
