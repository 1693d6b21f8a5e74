/**
 * The heat map as a grid: one row per layer, one column per format. Independent of Python and of
 * the workbench.
 */

import { drawHeatCell, drawHeatName } from "./heat_cells.js";
import { predictedAt, unpackedSensitivity } from "./table.js";
import { set } from "../shared/dom.js";
import { readableCount } from "../shared/format.js";
import { Grid } from "../shared/grid.js";

const MIN_NUMBER_WIDTH = 50;
const WEIGHTS_WIDTH = 66;

/** @typedef {import("./table.js").SensitivityTable} SensitivityTable */
/** @typedef {import("../shared/grid.js").Column<SensitivityTable>} HeatColumn */
/**
 * @typedef {{ row: number, column: number }} HeatPlace a row of the table and a column of the
 * formats; -1 is nowhere
 */

/** @extends {Grid<SensitivityTable>} */
export class HeatGrid extends Grid {
  /**
   * @param {{ onChoose: (layer: string, format: string) => void, onPoint: (place: HeatPlace | null,
   * cell: HTMLElement | null) => void,
   *   chosen: () => import("./chosen_formats.js").ChosenFormats, whyNot: (layer: string, format:
   *   string) => string }} own
   */
  constructor(own) {
    const label = "layers by format; arrows move, Enter chooses the format for the layer";
    const how = { table: unpackedSensitivity({}), label, rowHeight: 22, look: "pf-heat-grid" };
    super({ onChoose: () => {} }, how);
    this.own = own;
    this.format = 0; // the column at the cursor
    this.selected = ""; // the layer that is chosen everywhere; the cursor may be elsewhere
    this.body.addEventListener("pointermove", (event) => this.onPointer(event));
    for (const name of ["scroll", "blur"])
      this.element.addEventListener(name, () => own.onPoint(null, null), { passive: true });
    this.body.addEventListener("pointerleave", () => own.onPoint(null, null));
    this.element.addEventListener("focus", () => this.comeByKeyboard());
  }

  /** @override @param {SensitivityTable} table */
  show(table) {
    this.format = Math.max(0, Math.min(this.format, table.formats.length - 1));
    super.show(table);
  }

  /** Choose a row and bring it into view. @param {string} layer */
  select(layer) {
    this.selected = layer;
    this.refresh();
    const index = this.shown.rows.indexOf(this.shown.table.place.get(layer) ?? -1);
    if (index >= 0) this.window.reveal(index);
  }

  /** @override @param {number} width */
  all(width) {
    const { formats } = this.shown.table;
    const hasWeights = width > 560;
    const nameWidth = Math.min(260, Math.max(110, Math.round(width * 0.36)));
    const room = (width - nameWidth - (hasWeights ? WEIGHTS_WIDTH : 0)) / formats.length;
    const cell = Math.floor(Math.max(14, Math.min(104, room)));
    const hasNumbers = cell >= MIN_NUMBER_WIDTH;
    this.element.classList.toggle("pf-heat-bare", !hasNumbers);
    const columns = formats.map((format, column) =>
      this.formatColumn(format, column, cell, hasNumbers),
    );
    return [LAYER, ...(hasWeights ? [WEIGHTS] : []), ...columns];
  }

  /** @override A format's cells are as wide as there is room, its name only where that fits. @param {HeatColumn} column */
  widthOf({ width }) {
    return width;
  }

  /** @param {string} format @param {number} column @param {number} width @param {boolean} hasNumber @returns {HeatColumn} */
  formatColumn(format, column, width, hasNumber) {
    const optionsOf = (/** @type {SensitivityTable} */ { layers }, /** @type {number} */ row) => {
      const { chosen, asked } = this.own.chosen();
      const isTaken = chosen[layers[row]] === format;
      return {
        id: this.cellId(row, column),
        column,
        reason: this.own.whyNot(layers[row], format),
        isTaken,
        isAsked: isTaken && asked.has(layers[row]),
        hasCursor: row === this.shown.cursor && column === this.format,
        hasNumber,
      };
    };
    return {
      name: format,
      label: format,
      hint: `${format}: sort by it`,
      width,
      value: (table, row) => predictedAt(table, row, format),
      key: (table, row) => JSON.stringify(optionsOf(table, row)),
      draw: (cell, table, row) => drawHeatCell(cell, table, row, format, optionsOf(table, row)),
    };
  }

  /** @override @param {number} row */
  isChosen(row) {
    return this.shown.table.layers[row] === this.selected && this.selected !== "";
  }

  /** @override The cursor is a cell. */
  point() {
    const { cursor, index } = this.shown;
    const id = index < 0 ? null : this.cellId(cursor, this.format);
    set(this.element, { "aria-activedescendant": id });
  }

  /** @override Bring the cursor into view and report it. @param {number} index */
  moveTo(index) {
    this.shown.cursor = this.shown.rows[index];
    this.window.reveal(index);
    this.refresh();
    const { cursor } = this.shown;
    const cell = document.getElementById(this.cellId(cursor, this.format));
    this.own.onPoint({ row: cursor, column: this.format }, cell);
  }

  /** @override @param {number} index @param {boolean} isRight */
  step(index, isRight) {
    const last = this.shown.table.formats.length - 1;
    this.format = Math.max(0, Math.min(last, this.format + (isRight ? 1 : -1)));
    this.moveTo(index);
  }

  /** @override @param {number} index */
  act(index) {
    this.take({ row: this.shown.rows[index], column: this.format });
  }

  /** @override @param {MouseEvent} event */
  onClick(event) {
    const element = /** @type {HTMLElement | null} */ (
      /** @type {HTMLElement} */ (event.target).closest(".pf-row")
    );
    if (!element) return;
    const place = this.placeUnder(event);
    this.shown.cursor = this.shown.rows[Number(element.dataset.index)];
    this.format = place?.column ?? this.format;
    this.take(place);
  }

  /** @override @param {KeyboardEvent} event */
  isObeyed(event) {
    if (event.key === "Escape") this.own.onPoint(null, null);
    return super.isObeyed(event);
  }

  /** @param {HeatPlace | null} place null: the layer alone */
  take(place) {
    const { layers, formats } = this.shown.table;
    this.own.onChoose(layers[this.shown.cursor], place ? formats[place.column] : "");
    this.refresh();
  }

  /** Focus by keyboard: go to the last cursor position, or to the first cell. */
  comeByKeyboard() {
    const { rows, index } = this.shown;
    if (this.element.matches(":focus-visible") && rows.length) this.moveTo(Math.max(0, index));
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
      row: this.shown.rows[Number(element.dataset.index)],
      column: Number(/** @type {HTMLElement} */ (cell).dataset.column),
    };
  }

  /** @param {PointerEvent} event */
  onPointer(event) {
    const place = this.placeUnder(event);
    this.own.onPoint(place, place && /** @type {HTMLElement} */ (event.target));
  }
}

/** @type {HeatColumn} */
const LAYER = {
  name: "layer",
  label: "layer",
  width: 0,
  value: ({ layers }, row) => layers[row],
  draw: drawHeatName,
};

/** @type {HeatColumn} */
const WEIGHTS = {
  name: "parameters",
  label: "weights",
  hint: "the layer's parameters",
  width: WEIGHTS_WIDTH,
  isNumber: true,
  value: ({ parameters }, row) => parameters[row],
  draw(cell, { parameters }, row) {
    cell.textContent = readableCount(parameters[row]);
  },
};
