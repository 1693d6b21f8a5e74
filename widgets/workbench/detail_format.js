/** The chosen layer's format beside its facts: the table has no room for that column everywhere. */

import { h } from "../shared/dom.js";
import { isBranch } from "../shared/tree.js";
import { precisionOf } from "./precision_column.js";

/** @typedef {import("../shared/unpack.js").LayerTable} LayerTable */

export class DetailFormat {
  /**
   * @param {import("../layers/columns.js").Column} column the table's own, for one row
   * @param {() => import("./expected.js").Expected} state
   */
  constructor(column, state) {
    this.column = column;
    this.state = state;
    this.cell = h("dd", { class: "pf-cell pf-is-precision" });
    const row = h("div", { title: column.hint }, h("dt", {}, "run it in"), this.cell);
    this.element = h("dl", { class: "pf-detail-facts pf-detail-format", hidden: true }, row);
  }

  /** @param {LayerTable} table @param {string} layer the chosen one, or "" */
  show(table, layer) {
    const row = layer ? table.place.get(layer) : undefined;
    const choice = row !== undefined && precisionOf(this.state(), layer, !isBranch(table.end, row));
    this.element.hidden = !choice || Boolean(choice.reason); // the facts have what it computes in
    if (!this.element.hidden) this.column.draw(this.cell, table, /** @type {number} */ (row));
  }
}
