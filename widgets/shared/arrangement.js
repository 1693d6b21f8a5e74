/** The rows of a grid and their order: folding, sorting, filter and chosen row. No DOM. */

import { nextSorting, shownRows } from "./order.js";
import { above, isBranch } from "./tree.js";

/**
 * What a grid needs of a table; `tree.js` has the tree of one without branches.
 * @typedef {{ layers: string[], kind: string[], place: Map<string, number>, parent: Int32Array,
 * depth: Uint16Array, end: Int32Array }} GridTable
 */

/** @template {GridTable} T */
export class Arrangement {
  /**
   * @param {T} table @param {() => import("./grid.js").Column<T>[]} columns all there are, also
   * those that there is no room for
   */
  constructor(table, columns) {
    this.columns = columns;
    this.table = table;
    /** Paths, so that they mean the same in the next profile. @type {Set<string>} */
    this.closed = new Set();
    /** @type {import("./order.js").Sorting | null} */
    this.sorting = null;
    this.query = "";
    this.cursor = -1; // the chosen row's place in the table
    /** @type {number[]} */
    this.rows = [];
  }

  /**
   * Show another table; folding, sorting by a column that is still there, filter and choice stay.
   * @param {T} table
   */
  take(table) {
    const { chosen } = this;
    this.table = table;
    this.cursor = chosen === null ? -1 : (table.place.get(chosen) ?? -1);
    if (!this.column(this.sorting?.column)) this.sorting = null;
    this.arrange();
  }

  get isTree() {
    return !this.sorting && !this.query.trim();
  }

  /** The chosen layer's path, or null. */
  get chosen() {
    return this.cursor < 0 ? null : this.table.layers[this.cursor];
  }

  /** The index of the chosen row among the shown ones, or -1. */
  get index() {
    return this.cursor < 0 ? -1 : this.rows.indexOf(this.cursor);
  }

  /** @param {number} row */
  isClosed(row) {
    return this.closed.has(this.table.layers[row]);
  }

  /** Whether a row can be folded, as the table is shown now. @param {number} row */
  canFold(row) {
    return this.isTree && isBranch(this.table.end, row);
  }

  /** @param {number} row */
  fold(row) {
    const layer = this.table.layers[row];
    if (!this.closed.delete(layer)) this.closed.add(layer);
    if (this.cursor > row && this.cursor < this.table.end[row]) this.cursor = row;
    this.arrange();
  }

  /** Close all branches below the model, or open all if one is closed. */
  foldAll() {
    const { layers, depth, end, parent } = this.table;
    const branches = layers.filter((_, row) => depth[row] > 0 && isBranch(end, row));
    this.closed = this.closed.size ? new Set() : new Set(branches);
    const hiding =
      this.cursor < 0 ? [] : above(parent, this.cursor).filter((row) => this.isClosed(row));
    this.cursor = hiding.at(-1) ?? this.cursor;
    this.arrange();
  }

  /** @param {string} query */
  filter(query) {
    this.query = query;
    this.arrange();
  }

  /** @param {string} name */
  sort(name) {
    const { table } = this;
    const isNumber =
      table.layers.length > 0 && typeof this.column(name)?.value(table, 0) === "number";
    this.sorting = nextSorting(this.sorting, name, isNumber);
    this.arrange();
  }

  /**
   * Choose a layer and open the branches that hide it; null clears the choice.
   * @param {string | null} layer
   */
  choose(layer) {
    this.cursor = layer === null ? -1 : (this.table.place.get(layer) ?? -1);
    const opened =
      this.cursor < 0
        ? []
        : above(this.table.parent, this.cursor).filter((row) => this.isClosed(row));
    for (const row of opened) this.closed.delete(this.table.layers[row]);
    if (opened.length) this.arrange();
  }

  arrange() {
    const column = this.column(this.sorting?.column);
    this.rows = shownRows(this.table, this, (row) => column?.value(this.table, row) ?? "");
  }

  /** @param {string | undefined} name */
  column(name) {
    return this.columns().find((column) => column.name === name);
  }
}
