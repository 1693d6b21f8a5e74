/** A table as Python wrote it: a caption, column heads, rows of texts and of cells with more. */

import { barElement } from "./bar.js";
import { h } from "./dom.js";

/**
 * A text or a bar, or also a line below it, its tone, what a pointer is told, and a request that a
 * press of it sends (`cell` in `widgets/wire.py`).
 * @typedef {{ text: string, small?: string, tone?: string, hint?: string, ask?: any,
 *   spoken?: string, look?: string, bar?: import("./bar.js").Bar }} RichCell
 * @typedef {string | RichCell} Cell
 * @typedef {{ caption: string, rows: Record<string, Cell>[], words: string[], looks?: string[] }}
 *   Table `words`: columns of text, the others are figures (`records/table.py`); `looks` of rows
 */

/**
 * @param {Table} table
 * @param {((request: any) => void) | null} [press] null: there is nothing to press
 */
export function plainTable({ caption, rows, words, looks }, press = null) {
  const columns = Object.keys(rows[0] ?? {});
  const kind = (/** @type {string} */ column) => (words.includes(column) ? "pf-names" : "");
  const head = columns.map((column) => h("th", { scope: "col", class: kind(column) }, column));
  const body = rows.map((row, index) => {
    const cells = columns.map((column, place) => {
      const isName = place === 0 && Boolean(kind(column));
      return cellElement(row[column] ?? "", kind(column), isName, press);
    });
    return h("tr", { class: looks?.[index] }, ...cells);
  });
  return h(
    "table",
    { class: "pf-table pf-plain-table" },
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...body),
  );
}

/**
 * @param {Cell} given @param {string} kind @param {boolean} isName
 * @param {((request: any) => void) | null} press
 */
function cellElement(given, kind, isName, press) {
  const cell = typeof given === "string" ? { text: given } : given;
  const { text, small, tone, hint, ask, bar } = /** @type {RichCell} */ (cell);
  const look = [kind, tone && `pf-is-${tone}`].filter(Boolean).join(" ");
  return h(
    isName ? "th" : "td",
    { scope: isName && "row", class: look, title: !ask && hint },
    ask ? press && pressOf(cell, press) : small ? h("span", {}, text) : text,
    bar && barElement(bar, tone),
    small && h("small", {}, small),
  );
}

/** @param {RichCell} cell @param {(request: any) => void} press */
export function pressOf({ text, hint, ask, spoken, look = "pf-step" }, press) {
  const onclick = () => press(ask);
  return h(
    "button",
    { type: "button", class: look, title: hint, "aria-label": spoken, onclick },
    text,
  );
}
