/**
 * The heat map as a grid: one row per layer, one column per format. Independent of Python and of
 * the workbench.
 */

import { heatCell, heatRowHead } from "./heat_cells.js";
import { predictedAt, unpackedSensitivity } from "./table.js";
import { fresh, h } from "../shared/dom.js";
import { readableCount } from "../shared/format.js";
import { gridHead } from "../shared/grid_head.js";
import { isPlainKey, movedBy } from "../shared/grid_keys.js";
import { nextSorting, sortedRows } from "../shared/order.js";
import { RowWindow } from "../shared/row_window.js";

const HEAT_ROW = 22;
const MIN_NUMBER_WIDTH = 50;
const ACROSS = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, ArrowRight: 1 });

/**
 * @typedef {{ row: number, column: number }} HeatPlace a row of the table and a column of the
 * formats; -1 is nowhere
 */

export class HeatGrid {
  /**
   * @param {{ onChoose: (layer: string, format: string) => void, onPoint: (place: HeatPlace | null,
   * cell: HTMLElement | null) => void,
   *   chosen: () => import("./chosen_formats.js").ChosenFormats, whyNot: (layer: string, format:
   *   string) => string }} handlers
   */
  constructor(handlers) {
    this.handlers = handlers;
    this.table = unpackedSensitivity({});
    /** @type {number[]} */
    this.rows = [];
    /** @type {import("../shared/order.js").Sorting | null} */
    this.sorting = null;
    /** @type {HeatPlace} */
    this.cursor = { row: -1, column: 0 };
    this.selected = "";
    this.hasNumbers = true;
    this.hasWeights = true;
    this.id = `pf-heat-${Math.random().toString(36).slice(2)}`;
    this.head = gridHead(
      (name) => this.sort(name),
      () => {},
    );
    this.heads = h("div", { class: "pf-heads", role: "rowgroup" }, this.head.element);
    this.body = h("div", { class: "pf-rows", role: "rowgroup" });
    const label = "layers by format; arrows move, Enter chooses the format for the layer";
    this.element = h(
      "div",
      { class: "pf-layer-grid pf-heat-grid", role: "grid", tabindex: "0", "aria-label": label },
      this.heads,
      this.body,
    );
    this.window = new RowWindow({
      scroller: this.element,
      body: this.body,
      rowHeight: HEAT_ROW,
      headHeight: () => this.heads.offsetHeight,
      make: () => h("div", { class: "pf-row", role: "row" }),
      draw: (element, index) => this.drawRow(element, index),
      keep: () => this.rows.indexOf(this.cursor.row),
    });
    this.listen();
    this.sizes = new ResizeObserver(() => this.fit());
    this.sizes.observe(this.element);
  }

  listen() {
    this.body.addEventListener("click", (event) => this.onClick(event));
    this.body.addEventListener("pointermove", (event) => this.onPointer(event));
    this.body.addEventListener("pointerleave", () => this.handlers.onPoint(null, null));
    this.element.addEventListener("scroll", () => this.handlers.onPoint(null, null), {
      passive: true,
    });
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.element.addEventListener("focus", () => this.enter());
    this.element.addEventListener("blur", () => this.handlers.onPoint(null, null));
  }

  /** @param {import("./table.js").SensitivityTable} table */
  show(table) {
    const layer = this.table.layers[this.cursor.row];
    this.table = table;
    this.cursor = {
      row: table.place.get(layer) ?? -1,
      column: Math.max(0, Math.min(this.cursor.column, table.formats.length - 1)),
    };
    if (!table.formats.includes(this.sorting?.column ?? "")) this.sorting = null;
    this.element.style.setProperty("--pf-all-rows", String(table.layers.length));
    this.arrange();
    this.fit();
  }

  /** Choose a row and bring it into view. @param {string} layer */
  select(layer) {
    this.selected = layer;
    this.refresh();
    const index = this.rows.indexOf(this.table.place.get(layer) ?? -1);
    if (index >= 0) this.window.reveal(index);
  }

  /** Redraw the rows after a choice. */
  refresh() {
    this.window.each((element, index) => this.drawRow(element, index));
  }

  destroy() {
    this.sizes.disconnect();
    this.window.destroy();
  }

  // Private to the grid.

  /** @param {string} name */
  sort(name) {
    this.sorting = nextSorting(this.sorting, name, name !== "layer");
    this.element.scrollTop = 0;
    this.arrange();
    this.draw();
  }

  arrange() {
    const { table, sorting } = this;
    const all = Array.from(table.layers.keys());
    this.rows = sorting
      ? sortedRows(all, (row) => this.valueOf(row, sorting.column), sorting.isDown)
      : all;
  }

  /** @param {number} row @param {string} column */
  valueOf(row, column) {
    if (column === "layer") return this.table.layers[row];
    return column === "parameters"
      ? this.table.parameters[row]
      : predictedAt(this.table, row, column);
  }

  fit() {
    const width = this.element.clientWidth;
    const { formats } = this.table;
    if (!width || !formats.length) return;
    this.hasWeights = width > 560;
    const nameWidth = Math.min(260, Math.max(110, Math.round(width * 0.36)));
    const room = (width - nameWidth - (this.hasWeights ? 66 : 0)) / formats.length;
    const cell = Math.floor(Math.max(14, Math.min(104, room)));
    this.hasNumbers = cell >= MIN_NUMBER_WIDTH;
    this.element.classList.toggle("pf-heat-bare", !this.hasNumbers);
    const columns = [
      "minmax(0, 1fr)",
      this.hasWeights && "66px",
      `repeat(${formats.length}, ${cell}px)`,
    ];
    this.element.style.setProperty("--pf-columns", columns.filter(Boolean).join(" "));
    this.draw();
  }

  draw() {
    const { table } = this;
    const formats = table.formats.map((name) => ({
      name,
      label: name,
      hint: `${name}: sort by it`,
    }));
    const weights = {
      name: "parameters",
      label: "weights",
      isNumber: true,
      hint: "the layer's parameters",
    };
    const columns = [
      { name: "layer", label: "layer" },
      ...(this.hasWeights ? [weights] : []),
      ...formats,
    ];
    this.element.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.element.setAttribute("aria-colcount", String(columns.length));
    this.head.show(columns, this.sorting, null);
    this.window.renew(this.rows.length);
  }

  /** @param {HTMLElement} element @param {number} index */
  drawRow(element, index) {
    const { table } = this;
    const row = this.rows[index];
    const cells = table.formats.map((format, column) => this.formatCell(row, format, column));
    const weights = h(
      "div",
      { class: "pf-cell pf-number", role: "gridcell" },
      readableCount(table.parameters[row]),
    );
    fresh(element, heatRowHead(table, row), this.hasWeights ? weights : null, ...cells);
    element.dataset.index = String(index);
    element.setAttribute("aria-rowindex", String(index + 2));
    element.classList.toggle(
      "pf-chosen",
      table.layers[row] === this.selected && this.selected !== "",
    );
    const isHere = row === this.cursor.row;
    if (isHere)
      this.element.setAttribute("aria-activedescendant", this.cellId(row, this.cursor.column));
  }

  /** @param {number} row @param {string} format @param {number} column */
  formatCell(row, format, column) {
    const layer = this.table.layers[row];
    const { chosen, asked } = this.handlers.chosen();
    const isTaken = chosen[layer] === format;
    return heatCell(this.table, row, format, {
      id: this.cellId(row, column),
      column,
      reason: this.handlers.whyNot(layer, format),
      isTaken,
      isAsked: isTaken && asked.has(layer),
      hasCursor: row === this.cursor.row && column === this.cursor.column,
      hasNumber: this.hasNumbers,
    });
  }

  /** @param {number} row @param {number} column */
  cellId(row, column) {
    return `${this.id}-${row}-${column}`;
  }

  /** @param {Event} event @returns {HeatPlace | null} */
  placeUnder(event) {
    const cell = /** @type {HTMLElement} */ (event.target).closest(".pf-heat-cell");
    const element = /** @type {HTMLElement | null} */ (cell?.closest(".pf-row") ?? null);
    if (!cell || !element) return null;
    return {
      row: this.rows[Number(element.dataset.index)],
      column: Number(/** @type {HTMLElement} */ (cell).dataset.column),
    };
  }

  /** @param {PointerEvent} event */
  onPointer(event) {
    const place = this.placeUnder(event);
    this.handlers.onPoint(place, place && /** @type {HTMLElement} */ (event.target));
  }

  /** @param {MouseEvent} event */
  onClick(event) {
    const element = /** @type {HTMLElement | null} */ (
      /** @type {HTMLElement} */ (event.target).closest(".pf-row")
    );
    if (!element) return;
    const place = this.placeUnder(event);
    this.cursor = place ?? {
      row: this.rows[Number(element.dataset.index)],
      column: this.cursor.column,
    };
    this.take(place);
  }

  /** @param {HeatPlace | null} place null: the layer alone */
  take(place) {
    this.handlers.onChoose(
      this.table.layers[this.cursor.row],
      place ? this.table.formats[place.column] : "",
    );
    this.refresh();
  }

  /** Focus by keyboard: go to the last cursor position, or to the first cell. */
  enter() {
    if (!this.element.matches(":focus-visible") || !this.rows.length) return;
    if (this.cursor.row < 0) this.cursor = { row: this.rows[0], column: 0 };
    this.reach();
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (!isPlainKey(event) || event.target !== this.element || !this.rows.length) return;
    const index = this.rows.indexOf(this.cursor.row);
    const next = movedBy(
      event.key,
      index,
      this.rows.length,
      Math.max(1, Math.floor(this.window.height / HEAT_ROW) - 1),
    );
    const across = ACROSS[event.key];
    if (next !== null) this.cursor = { ...this.cursor, row: this.rows[next] };
    else if (across)
      this.cursor = {
        ...this.cursor,
        column: Math.max(0, Math.min(this.table.formats.length - 1, this.cursor.column + across)),
      };
    else if ((event.key === "Enter" || event.key === " ") && index >= 0) this.take(this.cursor);
    else if (event.key === "Escape") this.handlers.onPoint(null, null);
    else return;
    if (event.key !== "Escape") this.reach();
    event.preventDefault();
    event.stopPropagation();
  }

  /** Bring the cursor into view and report it. */
  reach() {
    this.window.reveal(this.rows.indexOf(this.cursor.row));
    this.refresh();
    this.handlers.onPoint(
      this.cursor,
      document.getElementById(this.cellId(this.cursor.row, this.cursor.column)),
    );
  }
}
