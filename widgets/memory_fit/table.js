/** The table of peaks: a stacked bar a row, the limit as a line through all of them. */

import { fresh, h } from "../shared/dom.js";
import { readableBytes } from "../shared/format.js";
import { limitPlace } from "../shared/memory_limit.js";
import { isSameStep } from "../workbench/expected.js";
import { verdictOf } from "./layout.js";

/** @typedef {import("./layout.js").FitRow} FitRow */

/** The legend: the colour of each category. @param {[string, number][]} held */
export function categoryKeys(held) {
  return held
    .filter(([, bytes]) => bytes > 0)
    .map(([name]) =>
      h("span", { class: "pf-group-key" }, h("i", { class: categoryClass(name) }), name),
    );
}

/** @param {string} name */
export function categoryClass(name) {
  return `pf-category-${name.replaceAll(" ", "-") || "any"}`;
}

/**
 * @param {HTMLElement} body the table's body @param {FitRow[]} rows
 * @param {{ reach: number, limit: number | null, isStale: boolean, asked: any[],
 *   choose: ((step: any) => void) | null }} how `isStale`: the batches are of another limit
 */
export function drawFitRows(body, rows, { reach, limit, isStale, asked, choose }) {
  fresh(
    body,
    ...rows.map((row) => {
      const verdict = verdictOf(row, limit);
      const shownBatch = row.batch && row.isRemedy && row.name.startsWith("a batch of");
      const largest = shownBatch ? String(row.batch) : isStale && row.largest ? "…" : row.largest;
      return h(
        "tr",
        { class: row.isRemedy ? "pf-fit-remedy" : "pf-fit-peak" },
        h(
          "th",
          { scope: "row", class: "pf-names" },
          h("span", {}, row.name),
          h("small", {}, row.hint),
        ),
        barCell(row, reach, limit),
        h("td", {}, readableBytes(row.bytes)),
        h("td", { class: `pf-names ${verdict.fits ? "pf-is-good" : "pf-is-bad"}` }, verdict.text),
        h("td", { title: isStale && row.largest && "of another limit; ask again" }, largest || "–"),
        h("td", {}, row.time || "–"),
        h("td", { class: "pf-fit-do" }, row.step && choose && stepButton(row, asked, choose)),
      );
    }),
  );
}

/** @param {FitRow} row @param {number} reach @param {number | null} limit */
function barCell(row, reach, limit) {
  const parts = row.parts.map(([name, bytes]) =>
    h("i", {
      class: categoryClass(name),
      style: `width: ${((100 * bytes) / reach).toFixed(2)}%`,
      title: `${name ? `${name} ` : ""}${readableBytes(bytes)}`,
    }),
  );
  const place = limit === null ? null : limitPlace(limit, 0, reach);
  const line =
    place &&
    h("span", { class: "pf-limit-line", style: `left: ${(100 * place.share).toFixed(2)}%` });
  const bars = h("div", { class: "pf-fit-bars", "aria-hidden": "true" }, ...parts, line);
  return h("td", { class: "pf-fit-bar" }, bars);
}

/** @param {FitRow} row @param {any[]} asked @param {(step: any) => void} choose */
function stepButton(row, asked, choose) {
  const isAsked = asked.some((step) => isSameStep(step, row.step));
  const attributes = {
    type: "button",
    class: `pf-step${isAsked ? " pf-asked" : ""}`,
    "aria-disabled": String(isAsked),
    "aria-label": `add the step for ${row.name}`,
    onclick: () => isAsked || choose(row.step),
  };
  return h("button", attributes, "Add step");
}
