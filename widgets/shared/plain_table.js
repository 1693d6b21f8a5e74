/** A table of texts as Python wrote them: a caption, column heads, rows. */

import { h } from "./dom.js";

/**
 * @param {{ caption: string, rows: Record<string, string>[], words: string[] }} table `words`:
 * columns of text; the others are figures (`records/table.py`)
 */
export function plainTable({ caption, rows, words }) {
  const columns = Object.keys(rows[0] ?? {});
  const kind = (/** @type {string} */ column) => words.includes(column) && "pf-names";
  const head = columns.map((column) => h("th", { scope: "col", class: kind(column) }, column));
  const cell = (/** @type {string} */ column, /** @type {Record<string, string>} */ row) =>
    column === columns[0] && kind(column)
      ? h("th", { scope: "row", class: "pf-names" }, row[column] ?? "")
      : h("td", { class: kind(column) }, row[column] ?? "");
  const body = rows.map((row) => h("tr", {}, ...columns.map((column) => cell(column, row))));
  return h(
    "table",
    { class: "pf-table pf-plain-table" },
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...body),
  );
}
