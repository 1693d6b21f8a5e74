/**
 * The list of attention layers: a checkbox for each, and its error at the chosen stop. Independent
 * of Python and the workbench.
 */

import { indexAfterKey } from "../shared/chart.js";
import { fresh, h, set } from "../shared/dom.js";
import { readablePercent } from "../shared/format.js";
import { heatLook, heatShare, heatText } from "../shared/heat_scale.js";
import { partedPath } from "../shared/tree.js";

/** @typedef {import("./table.js").AttentionTable} AttentionTable */
/**
 * @typedef {{ element: HTMLElement, tick: HTMLInputElement, bar: HTMLElement, value: HTMLElement }}
 * AttentionRow
 */

const LEAST_BAR = 0.03;

export class AttentionLayers {
  /** @param {{ onTick: (layers: string[]) => void, onLayer: (layer: string) => void }} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    this.table = /** @type {AttentionTable | null} */ (null);
    /** @type {AttentionRow[]} */
    this.rows = [];
    this.selected = "";
    this.all = /** @type {HTMLInputElement} */ (
      h("input", { type: "checkbox", "aria-label": "all layers take part" })
    );
    this.count = h("span", {});
    this.head = h(
      "label",
      { class: "pf-attending-head" },
      this.all,
      this.count,
      h("small", {}, "tokens × heads"),
      h("small", { class: "pf-attending-scale" }, "its error at this share"),
    );
    this.list = h("ul", {
      class: "pf-attending-list",
      "aria-label": "layers that attend; arrows move, the space bar ticks",
    });
    this.element = h("div", { class: "pf-attending" }, this.head, this.list);
    this.all.addEventListener("change", () =>
      this.handlers.onTick(this.all.checked ? (this.table?.able ?? []) : []),
    );
    this.list.addEventListener("change", () => this.handlers.onTick(this.ticked));
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("click", (event) => this.click(event));
  }

  /** @param {AttentionTable} table */
  show(table) {
    this.table = table;
    this.rows = table.layers.map((layer) => attentionRow(layer));
    fresh(this.list, ...this.rows.map((row) => row.element));
    this.head.hidden = !table.layers.length;
    this.all.disabled = !table.able.length;
    this.stopAt(this.rows.findIndex((row) => !row.tick.disabled));
    this.select(this.selected);
  }

  /** @param {number} index of a stop @param {string[]} layers that take part */
  place(index, layers) {
    const { table } = this;
    if (!table) return;
    this.rows.forEach((row, at) => {
      const layer = table.layers[at];
      row.tick.checked = layers.includes(layer.layer);
      row.element.classList.toggle("pf-attending-out", !row.tick.checked);
      if (!layer.reason) showError(row, table, layer.errors[index]);
    });
    fresh(this.count, `${layers.length} of ${table.layers.length} take part`);
    this.all.checked = layers.length > 0 && layers.length === table.able.length;
    this.all.indeterminate = layers.length > 0 && layers.length < table.able.length;
  }

  /** @param {string} layer */
  select(layer) {
    this.selected = layer;
    this.rows.forEach((row, at) =>
      row.element.classList.toggle("pf-chosen", this.table?.layers[at].layer === layer),
    );
  }

  /** @returns {string[]} */
  get ticked() {
    return this.rows.flatMap((row, at) =>
      row.tick.checked ? [this.table?.layers[at].layer ?? ""] : [],
    );
  }

  /** One Tab stop for all checkboxes. @param {number} at */
  stopAt(at) {
    this.rows.forEach((row, place) => (row.tick.tabIndex = place === at ? 0 : -1));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const free = this.rows.filter((row) => !row.tick.disabled);
    const at = free.findIndex((row) => row.tick === event.target);
    if (at < 0 || event.key === "ArrowLeft" || event.key === "ArrowRight") return;
    const next = indexAfterKey(event.key, at, free.length);
    if (next === at) return;
    event.preventDefault();
    event.stopPropagation();
    this.stopAt(this.rows.indexOf(free[next]));
    free[next].tick.focus();
    this.choose(this.rows.indexOf(free[next]));
  }

  /** @param {MouseEvent} event */
  click(event) {
    const element = /** @type {HTMLElement} */ (event.target).closest("li");
    const at = this.rows.findIndex((row) => row.element === element);
    if (at < 0) return;
    if (!this.rows[at].tick.disabled) this.stopAt(at);
    this.choose(at);
  }

  /** @param {number} at */
  choose(at) {
    this.handlers.onLayer(this.table?.layers[at].layer ?? "");
  }
}

/** @param {import("./table.js").AttendingLayer} layer @returns {AttentionRow} */
function attentionRow(layer) {
  const [head, tail] = partedPath(layer.layer, 2);
  const label = layer.reason
    ? `${layer.layer} cannot take part: ${layer.reason}`
    : `${layer.layer} takes part`;
  const tick = /** @type {HTMLInputElement} */ (
    h("input", {
      type: "checkbox",
      "aria-label": label,
      disabled: Boolean(layer.reason),
      title: layer.reason || null,
    })
  );
  const [bar, value] = [h("i", {}), h("b", {})];
  const name = h(
    "span",
    { class: "pf-path" },
    h("span", { class: "pf-where" }, head),
    h("span", {}, tail),
  );
  const facts = [
    layer.layer,
    layer.reason,
    Number.isNaN(layer.share)
      ? ""
      : `its attention takes ${readablePercent(layer.share)} of the model's time`,
  ];
  const figures = layer.reason
    ? [h("em", {}, layer.reason)]
    : [h("span", { class: "pf-attending-bar", "aria-hidden": "true" }, bar), value];
  const element = h(
    "li",
    { class: layer.reason ? "pf-attending-barred" : "", title: facts.filter(Boolean).join("\n") },
    tick,
    name,
    h("small", {}, layer.size),
    ...figures,
  );
  return { element, tick, bar, value };
}

/** @param {AttentionRow} row @param {AttentionTable} table @param {number} error */
function showError(row, table, error) {
  const share =
    table.scale && error > 0 ? heatShare(table.scale, Math.min(error, table.scale.top)) : 0;
  set(row.bar, { class: heatLook(table.scale, error) });
  row.bar.style.width = `${(100 * Math.max(LEAST_BAR, share)).toFixed(1)}%`;
  fresh(row.value, heatText(error));
}
