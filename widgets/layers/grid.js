/** The grid of the layer table. Independent of Python and the other views. */

import { layerColumns, longestNames, nameWidthIn } from "./columns.js";
import { fittedName } from "../shared/fitted_name.js";
import { Grid } from "../shared/grid.js";
import { drawName, nameRoom } from "./name.js";
import { wordsOf } from "../shared/order.js";
import { unpackedProfile } from "../shared/unpack.js";

const PATH_EDGES = 20;

/** @typedef {import("./columns.js").Column} Column */
/** @typedef {import("../shared/unpack.js").LayerTable} LayerTable */

/** @extends {Grid<LayerTable>} */
export class LayerGrid extends Grid {
  /** @param {import("../shared/grid.js").GridHandlers} handlers */
  constructor(handlers) {
    super(handlers, {
      table: unpackedProfile({}),
      label: "layers",
      rowHeight: 24,
      isTree: true,
    });
    /** Columns beside the profile's own. @type {Column[]} */
    this.extras = [];
  }

  /** @param {Column[]} columns */
  addColumns(columns) {
    this.extras = columns;
    this.fit();
  }

  /** @override */
  all() {
    const { shown } = this;
    const { before, engine } = shown.table;
    const own = layerColumns(() => shown.isTree, Boolean(before), Boolean(engine));
    return [this.nameColumn(), ...own, ...this.extras];
  }

  /** @override @param {number} width */
  leastNameWidth(width) {
    const { table } = this.shown;
    const longest = longestNames(table, 8);
    const rooms = longest.map((row) => nameRoom(table, row, (weight) => this.measure(weight)));
    const paths = longest.map((row) => this.measure(400)(table.layers[row]) + PATH_EDGES);
    const [inTree, inList] = [rooms, paths].map((asked) => Math.ceil(Math.max(0, ...asked)));
    return nameWidthIn(width, inTree, inList);
  }

  /** @returns {Column} */
  nameColumn() {
    const { shown } = this;
    return {
      name: "layer",
      label: "Layer",
      width: 0,
      value: (table, row) => table.layers[row],
      key: (_, row) => `${shown.isTree} ${shown.isClosed(row)} ${shown.query} ${this.nameWidth}`,
      draw: (cell, table, row) => drawName(cell, table, row, this.nameStyle(row)),
    };
  }

  /** @param {number} row */
  nameStyle(row) {
    const { isTree, query } = this.shown;
    return {
      isTree,
      isClosed: this.shown.isClosed(row),
      words: wordsOf(query),
      fit: (
        /** @type {string} */ name,
        /** @type {number} */ taken,
        /** @type {number} */ weight,
      ) => fittedName(name, this.nameWidth - taken, this.measure(weight)),
      onFold: (/** @type {number} */ row) => this.fold(row),
    };
  }
}
