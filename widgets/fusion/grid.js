/** The grid of fusion sites, each row with a switch. Independent of Python and the workbench. */

import { h } from "../shared/dom.js";
import { drawPlace, fittingFusionColumns, FUSION_COLUMNS } from "./row.js";
import { filteredPlaces, fusionValue, placeSentence } from "./table.js";
import { gridHead } from "../shared/grid_head.js";
import { isPlainKey, movedBy } from "../shared/grid_keys.js";
import { nextSorting, piecesOf, sortedRows, wordsOf } from "../shared/order.js";
import { RowWindow } from "../shared/row_window.js";

/** @typedef {import("./table.js").FusedPlace} FusedPlace */
/** @typedef {import("./table.js").FusionTable} FusionTable */
/** @typedef {import("./choice.js").FusionChoice} FusionChoice */

const FUSION_ROW = 40;

export class FusionGrid {
  /**
   * @param {{ onSwitch: (one: FusedPlace, isOn: boolean) => void, onLayer: (layer: string,
   * isPassing: boolean) => void, onShown: (shown: number) => void,
   *   choice: () => FusionChoice, hasSwitches: boolean }} handlers
   */
  constructor(handlers) {
    this.handlers = handlers;
    this.table = /** @type {FusionTable | null} */ (null);
    /** @type {FusedPlace[]} */
    this.rows = [];
    this.columns = FUSION_COLUMNS;
    /** @type {import("../shared/order.js").Sorting | null} */
    this.sorting = null;
    this.query = "";
    this.cursor = "";
    this.isPassing = false;
    this.id = `pf-fusion-${Math.random().toString(36).slice(2)}`;
    this.head = gridHead(
      (name) => this.sort(name),
      () => {},
    );
    this.heads = h("div", { class: "pf-heads", role: "rowgroup" }, this.head.element);
    this.body = h("div", { class: "pf-rows", role: "rowgroup" });
    const label = handlers.hasSwitches
      ? "places where layers can run as one; arrows move, Enter switches"
      : "places where layers can run as one; arrows move";
    this.element = h(
      "div",
      { class: "pf-layer-grid pf-fusion-grid", role: "grid", tabindex: "0", "aria-label": label },
      this.heads,
      this.body,
    );
    this.window = new RowWindow({
      scroller: this.element,
      body: this.body,
      rowHeight: FUSION_ROW,
      headHeight: () => this.heads.offsetHeight,
      make: () => h("div", { class: "pf-row", role: "row" }),
      draw: (element, index) => this.drawRow(element, index),
      keep: () => this.index,
    });
    this.body.addEventListener("click", (event) => this.onClick(event));
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.element.addEventListener("keyup", () => this.settle());
    this.sizes = new ResizeObserver(() => this.fit());
    this.sizes.observe(this.element);
  }

  /** @param {FusionTable} table */
  show(table) {
    this.table = table;
    this.element.style.setProperty("--pf-all-rows", String(table.places.length));
    this.arrange();
  }

  /** Scroll the site of a layer into view. @param {string} layer */
  select(layer) {
    this.cursor = this.table?.placeOf.get(layer)?.place ?? "";
    this.refresh();
    if (this.index >= 0) this.window.reveal(this.index);
  }

  /** @param {string} query */
  filter(query) {
    this.query = query;
    this.element.scrollTop = 0;
    this.arrange();
  }

  /** Redraw the rows after a change of the fused sites. */
  refresh() {
    this.window.each((element, index) => this.drawRow(element, index));
    this.point();
  }

  /** Come from the filter: to the chosen row, or else to the first. */
  enter() {
    this.element.focus();
    if (this.rows.length && this.index < 0) this.moveTo(0, false);
  }

  /** The site at the cursor. */
  get described() {
    return this.rows[this.index] ?? null;
  }

  destroy() {
    this.sizes.disconnect();
    this.window.destroy();
  }

  // Private to the grid.

  get index() {
    return this.rows.findIndex((site) => site.place === this.cursor);
  }

  /** @param {string} name */
  sort(name) {
    const isNumber = Boolean(this.columns.find((column) => column.name === name)?.isNumber);
    this.sorting = nextSorting(this.sorting, name, isNumber);
    this.element.scrollTop = 0;
    this.arrange();
  }

  arrange() {
    const { table, sorting } = this;
    if (!table) return;
    const left = filteredPlaces(table, this.query);
    const places = left.map((site) => site.index);
    const order = sorting
      ? sortedRows(places, (row) => fusionValue(table.places[row], sorting.column), sorting.isDown)
      : places;
    this.rows = order.map((row) => table.places[row]);
    this.handlers.onShown(this.rows.length);
    this.fit();
  }

  fit() {
    const width = this.element.clientWidth;
    if (!width || !this.table) return;
    this.columns = fittingFusionColumns(
      width,
      this.table.places.some((site) => site.runs),
    );
    const widths = this.columns.map((column) => `${column.width}px`);
    this.element.style.setProperty(
      "--pf-columns",
      [this.handlers.hasSwitches && "42px", "minmax(0, 1fr)", ...widths].filter(Boolean).join(" "),
    );
    this.draw();
  }

  draw() {
    const first = this.handlers.hasSwitches
      ? [{ name: "switch", label: "", hint: "whether it runs as one" }]
      : [];
    const columns = [
      ...first,
      { name: "layer", label: "layers, in the order of the model" },
      ...this.columns,
    ];
    this.element.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.element.setAttribute("aria-colcount", String(columns.length));
    this.head.show(columns, this.sorting, null);
    this.window.renew(this.rows.length);
    this.point();
  }

  point() {
    if (this.index < 0) this.element.removeAttribute("aria-activedescendant");
    else this.element.setAttribute("aria-activedescendant", `${this.id}-${this.index}`);
  }

  /** @param {HTMLElement} element @param {number} index */
  drawRow(element, index) {
    const site = this.rows[index];
    const { on, asked } = this.handlers.choice();
    const isOn = on.has(site.place);
    const words = wordsOf(this.query);
    drawPlace(element, site, this.columns, {
      isOn,
      isAsked: asked.has(site.place),
      hasSwitch: this.handlers.hasSwitches,
      longestMs: this.table?.longestMs || 1,
      words: (text) =>
        piecesOf(text, words).map((piece) =>
          piece.isHit ? h("mark", {}, piece.text) : piece.text,
        ),
    });
    element.id = `${this.id}-${index}`;
    element.dataset.index = String(index);
    element.setAttribute("aria-rowindex", String(index + 2));
    element.setAttribute("aria-selected", String(site.place === this.cursor));
    element.setAttribute("aria-label", `${site.layers.join(" + ")}: ${placeSentence(site, isOn)}`);
    element.classList.toggle("pf-chosen", site.place === this.cursor);
    element.classList.toggle("pf-fusion-apart", !site.canSwitch);
  }

  /** @param {number} index @param {boolean} isPassing */
  moveTo(index, isPassing) {
    this.cursor = this.rows[index].place;
    this.refresh();
    this.window.reveal(index);
    this.isPassing = isPassing;
    this.handlers.onLayer(this.cursor, isPassing);
  }

  /** On key up: report the row that was reached. */
  settle() {
    if (this.isPassing) this.handlers.onLayer(this.cursor, false);
    this.isPassing = false;
  }

  /** @param {FusedPlace} site */
  turn(site) {
    if (site.canSwitch && this.handlers.hasSwitches)
      this.handlers.onSwitch(site, !this.handlers.choice().on.has(site.place));
  }

  /** @param {MouseEvent} event */
  onClick(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const element = /** @type {HTMLElement | null} */ (target.closest(".pf-row"));
    if (!element) return;
    const isSwitch = target.closest(".pf-switch") !== null;
    const site = this.rows[Number(element.dataset.index)];
    this.element.focus({ preventScroll: true });
    this.moveTo(Number(element.dataset.index), false);
    if (isSwitch) this.turn(site);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (!isPlainKey(event) || event.target !== this.element || !this.rows.length) return;
    const { index } = this;
    const next = movedBy(
      event.key,
      index,
      this.rows.length,
      Math.max(1, Math.floor(this.window.height / FUSION_ROW) - 1),
    );
    if (next !== null) this.moveTo(next, event.repeat);
    else if ((event.key === "Enter" || event.key === " ") && index >= 0)
      this.turn(this.rows[index]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
