/** The share of each layer that is kept, as bars, and one threshold for all layers. */

import { freshId, indexAfterKey } from "../shared/chart.js";
import { fresh, h, set } from "../shared/dom.js";
import { readablePercent } from "../shared/format.js";
import { keptText, thresholdText } from "./layout.js";
import { canLose, keptByOne, thresholdKeeping } from "./table.js";
import { afterRest } from "../shared/pause.js";
import { scrolledTo } from "../shared/row_window.js";

/** @typedef {import("./table.js").ImportanceTable} ImportanceTable */

const STEPS = 1000;
const KEPT_ROW = 20;

export class KeptBars {
  /**
   * @param {{ onLayer: (layer: string) => void, onLive: (threshold: number, kept: number[]) =>
   * void,
   *   onSettle: (threshold: number, kept: number[]) => void }} handlers
   */
  constructor(handlers) {
    this.handlers = handlers;
    this.table = /** @type {ImportanceTable | null} */ (null);
    /** @type {number[]} */
    this.kept = [];
    this.selected = "";
    this.isMoving = false;
    this.isByKey = false;
    this.rest = afterRest(() => this.settle());
    this.waiting = 0;
    this.id = freshId("kept");
    /** @type {{ element: HTMLElement, bar: HTMLElement, count: HTMLElement, shown: number }[]} */
    this.rows = [];
    this.summary = h("p", { class: "pf-channels-said" });
    this.slider = /** @type {HTMLInputElement} */ (
      h("input", {
        type: "range",
        min: 0,
        max: STEPS,
        value: 0,
        class: "pf-kept-slider",
        "aria-label": "one threshold for all layers",
      })
    );
    this.list = h("ul", {
      class: "pf-kept-list",
      role: "listbox",
      tabindex: "0",
      "aria-label": "share of channels kept, by layer",
    });
    const label = h(
      "label",
      { class: "pf-kept-label" },
      h("span", {}, "one threshold for all layers"),
      this.slider,
    );
    this.element = h("div", { class: "pf-kept" }, this.summary, label, this.list);
    this.listen();
  }

  /** @param {ImportanceTable} table @param {number[]} kept */
  show(table, kept) {
    if (table !== this.table) this.build(table);
    if (this.isMoving) return; // keep a drag
    this.kept = kept;
    this.place();
  }

  /** @param {string} layer */
  select(layer) {
    this.selected = layer;
    const at = this.table?.place.get(layer) ?? -1;
    this.rows.forEach((row, index) =>
      row.element.setAttribute("aria-selected", String(index === at)),
    );
    set(this.list, { "aria-activedescendant": at >= 0 && `${this.id}-${at}` });
    if (at >= 0)
      this.list.scrollTop = scrolledTo(this.list.scrollTop, this.list.clientHeight, KEPT_ROW, at);
  }

  /**
   * Update the count of one layer while its own threshold is dragged.
   * @param {number} row @param {number} kept
   */
  tell(row, kept) {
    if (this.isMoving) return;
    this.kept = this.kept.with(row, kept);
    this.place();
  }

  destroy() {
    cancelAnimationFrame(this.waiting);
    this.rest.drop();
  }

  // Private to this list.

  listen() {
    this.slider.addEventListener("input", () => this.move());
    this.slider.addEventListener("pointerdown", () => (this.isByKey = false));
    this.slider.addEventListener("keydown", () => (this.isByKey = true));
    this.slider.addEventListener("change", () => (this.isByKey ? this.rest.wait() : this.settle()));
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("click", (event) => {
      const element = /** @type {HTMLElement} */ (event.target).closest("li");
      const at = this.rows.findIndex((row) => row.element === element);
      if (at >= 0) this.choose(at);
    });
  }

  /** @param {ImportanceTable} table */
  build(table) {
    this.table = table;
    this.isMoving = false;
    this.rows = table.layers.map((layer, row) => this.row(layer, row));
    fresh(this.list, ...this.rows.map((row) => row.element));
    this.slider.disabled = !table.all.length;
    this.select(this.selected);
  }

  /** @param {string} layer @param {number} row */
  row(layer, row) {
    const note = this.table?.note[row] ?? "";
    const cut = layer.lastIndexOf(".") + 1;
    const bar = h("i", {});
    const count = h("b", {});
    const name = h(
      "span",
      { class: "pf-path" },
      h("span", { class: "pf-where" }, layer.slice(0, cut)),
      h("span", {}, layer.slice(cut)),
    );
    const look = this.table && canLose(this.table, row) ? "" : "pf-kept-fixed";
    const element = h(
      "li",
      {
        role: "option",
        id: `${this.id}-${row}`,
        class: look,
        title: [layer, note].filter(Boolean).join(": "),
      },
      name,
      h("span", { class: "pf-kept-bar", "aria-hidden": "true" }, bar),
      count,
    );
    return { element, bar, count, shown: -1 };
  }

  /** Update the changed rows. */
  place() {
    cancelAnimationFrame(this.waiting);
    this.waiting = 0;
    const { table } = this;
    if (!table) return;
    this.rows.forEach((row, index) => {
      if (row.shown === this.kept[index]) return;
      row.shown = this.kept[index];
      const all = table.channels[index];
      row.bar.style.transform = `scaleX(${all ? row.shown / all : 0})`;
      fresh(row.count, `${row.shown}/${all}`);
    });
    const [kept, all] = [this.kept, table.channels].map((counts) =>
      [...counts].reduce((sum, count) => sum + count, 0),
    );
    const share = kept < all ? readablePercent(kept / all) : "100%";
    const threshold = this.isMoving ? ` · at ${thresholdText(this.threshold)} × each mean` : "";
    fresh(this.summary, h("b", {}, keptText(kept, all)), h("span", {}, ` · ${share}${threshold}`));
    this.describe(kept, all);
  }

  /** @param {number} kept @param {number} all */
  describe(kept, all) {
    if (!this.isMoving && this.table) this.slider.value = String(this.stepOf(this.table));
    const at = this.isMoving ? `, at ${thresholdText(this.threshold)} times each layer's mean` : "";
    set(this.slider, { "aria-valuetext": `${keptText(kept, all)}${at}` });
  }

  /** The slider's position for the kept channels. @param {ImportanceTable} table */
  stepOf(table) {
    const free = table.layers.reduce(
      (sum, _, row) => sum + (canLose(table, row) ? this.kept[row] : 0),
      0,
    );
    const most = table.layers.reduce(
      (sum, _, row) => sum + (canLose(table, row) ? table.channels[row] : 0),
      0,
    );
    return most ? Math.round(STEPS * (1 - free / most)) : 0;
  }

  /** The slider goes by the share that is removed: equal steps even if the values are unequal. */
  get threshold() {
    const all = this.table?.all ?? new Float32Array();
    return thresholdKeeping(all, Math.round(all.length * (1 - Number(this.slider.value) / STEPS)));
  }

  move() {
    this.isMoving = true;
    if (this.waiting || !this.table) return;
    this.waiting = requestAnimationFrame(() => {
      if (!this.table || !this.isMoving) return;
      this.kept = keptByOne(this.table, this.threshold);
      this.place();
      this.handlers.onLive(this.threshold, this.kept);
    });
  }

  settle() {
    this.rest.drop();
    if (!this.table) return;
    const { threshold } = this;
    this.kept = keptByOne(this.table, threshold);
    this.place();
    this.isMoving = false;
    this.handlers.onSettle(threshold, this.kept);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const at = this.table?.place.get(this.selected) ?? -1;
    const next = indexAfterKey(event.key, at, this.rows.length);
    if (next === at || next < 0 || event.key === "ArrowLeft" || event.key === "ArrowRight") return;
    event.preventDefault();
    this.choose(next);
  }

  /** @param {number} row */
  choose(row) {
    const layer = this.table?.layers[row] ?? "";
    this.select(layer);
    this.handlers.onLayer(layer);
  }
}
