/** A table of texts as Python wrote them: a caption, column heads, rows. */

import { h } from "./dom.js";

/**
 * @param {string} caption @param {Record<string, string>[]} rows @param {string[]} words columns of
 * text; the others are figures
 */
export function plainTable(caption, rows, words) {
  const columns = Object.keys(rows[0] ?? {});
  const kind = (/** @type {string} */ column) => words.includes(column) && "pf-names";
  const head = columns.map((column) => h("th", { scope: "col", class: kind(column) }, column));
  const body = rows.map((row) =>
    h("tr", {}, ...columns.map((column) => h("td", { class: kind(column) }, row[column] ?? ""))),
  );
  return h(
    "table",
    { class: "pf-table pf-plain-table" },
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...body),
  );
}
