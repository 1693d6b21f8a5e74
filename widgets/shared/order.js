/** Which rows a table shows, and in which order. No DOM. */

import { openRows } from "./tree.js";

/** @typedef {{ column: string, isDown: boolean }} Sorting */

const COLLATOR = new Intl.Collator("en", { numeric: true });

/**
 * The sorting after a click on a head: first its default direction (numbers: descending), then the
 * other, then the tree.
 * @param {Sorting | null} now @param {string} column @param {boolean} isNumber @returns {Sorting |
 * null}
 */
export function nextSorting(now, column, isNumber) {
  if (now?.column !== column) return { column, isDown: isNumber };
  return now.isDown === isNumber ? { column, isDown: !isNumber } : null;
}

/**
 * Rows by their values; equal ones keep their order, and those without a value come last in both
 * directions.
 * @param {number[]} rows @param {(row: number) => number | string} valueOf @param {boolean} isDown
 * @returns {number[]}
 */
export function sortedRows(rows, valueOf, isDown) {
  const keyed = rows.map((row) => ({ row, value: valueOf(row) }));
  keyed.sort(
    (first, second) =>
      blanksLast(first.value, second.value) ||
      (isDown ? -1 : 1) * ascending(first.value, second.value),
  );
  return keyed.map((first) => first.row);
}

/** The words that a filter asks for. @param {string} query @returns {string[]} */
export function wordsOf(query) {
  return query.toLowerCase().split(/\s+/).filter(Boolean);
}

/**
 * Whether each word occurs in the path or the kind.
 * @param {string} path @param {string} kind @param {string[]} words
 */
export function isMatch(path, kind, words) {
  const [where, what] = [path.toLowerCase(), kind.toLowerCase()];
  return words.every((word) => where.includes(word) || what.includes(word));
}

/**
 * A text in pieces, those that a word matches marked: "layer1.conv1" by "conv" → ["layer1.",
 * "*conv", "1"] as objects.
 * @param {string} text @param {string[]} words @returns {{ text: string, isHit: boolean }[]}
 */
export function piecesOf(text, words) {
  if (!words.length) return [{ text, isHit: false }];
  const pattern = new RegExp(
    `(${words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`,
    "gi",
  );
  const pieces = text
    .split(pattern)
    .map((piece, place) => ({ text: piece, isHit: place % 2 === 1 }));
  return pieces.filter((piece) => piece.text);
}

/**
 * The rows to show: the open part of the tree, or a flat list if sorted or filtered.
 * @param {{layers: string[], kind: string[], end: Int32Array}} table
 * @param {{closed: Set<string>, query: string, sorting: Sorting | null}} wish
 * @param {(row: number) => number | string} valueOf what it is sorted by @returns {number[]}
 */
export function shownRows(table, wish, valueOf) {
  if (!wish.query.trim() && !wish.sorting)
    return openRows(table.end, (row) => wish.closed.has(table.layers[row]));
  const words = wordsOf(wish.query);
  const rows = Array.from(table.layers.keys()).filter((row) =>
    isMatch(table.layers[row], table.kind[row] ?? "", words),
  );
  return wish.sorting ? sortedRows(rows, valueOf, wish.sorting.isDown) : rows;
}

/** @param {number | string} first @param {number | string} second */
function blanksLast(first, second) {
  return Number(isBlank(first)) - Number(isBlank(second));
}

/** @param {number | string} value */
function isBlank(value) {
  return value === "" || Number.isNaN(value);
}

/** @param {number | string} first @param {number | string} second */
function ascending(first, second) {
  if (isBlank(first)) return 0;
  return typeof first === "number" && typeof second === "number"
    ? first - second
    : COLLATOR.compare(String(first), String(second));
}
