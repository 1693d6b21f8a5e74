/**
 * The list of attention layers: a checkbox for each, and its error at the chosen stop. Independent
 * of Python and the workbench.
 */

import { fresh, h, set } from "../shared/dom.js";
import { rovingTabindex } from "../shared/roving_tabindex.js";
import { partedPath } from "../shared/tree.js";

/** @typedef {import("./choice.js").AttentionTable} AttentionTable */
/** @typedef {import("./choice.js").AttendingLayer} AttendingLayer */
/**
 * @typedef {{ element: HTMLElement, tick: HTMLInputElement, bar: HTMLElement, value: HTMLElement,
 *   layer: AttendingLayer }} AttentionRow
 */

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
    this.stopAt = rovingTabindex(this.list, "input:not(:disabled)", true);
    for (const name of ["click", "focusin"])
      this.list.addEventListener(name, (event) => {
        const row = this.rows.find(({ element }) =>
          element.contains(/** @type {Node} */ (event.target)),
        );
        if (!row) return;
        if (!row.tick.disabled) this.stopAt(row.tick);
        this.handlers.onLayer(row.layer.layer);
      });
  }

  /** @param {AttentionTable} table */
  show(table) {
    this.table = table;
    this.rows = table.layers.map((layer) => attentionRow(layer));
    fresh(this.list, ...this.rows.map((row) => row.element));
    this.head.hidden = !table.layers.length;
    this.all.disabled = !table.able.length;
    this.stopAt(this.list.querySelector("input:not(:disabled)"));
    this.select(this.selected);
  }

  /** @param {number} index of a stop @param {string[]} layers that take part */
  place(index, layers) {
    const { table } = this;
    if (!table) return;
    for (const { layer, tick, element, bar, value } of this.rows) {
      tick.checked = layers.includes(layer.layer);
      element.classList.toggle("pf-attending-out", !tick.checked);
      const error = layer.errors[index];
      if (!error) continue;
      set(bar, { class: error.look, style: `width: ${(100 * error.share).toFixed(1)}%` });
      fresh(value, error.text);
    }
    fresh(this.count, `${layers.length} of ${table.layers.length} take part`);
    this.all.checked = layers.length > 0 && layers.length === table.able.length;
    this.all.indeterminate = layers.length > 0 && layers.length < table.able.length;
  }

  /** @param {string} chosen */
  select(chosen) {
    this.selected = chosen;
    for (const { element, layer } of this.rows)
      element.classList.toggle("pf-chosen", layer.layer === chosen);
  }

  /** @returns {string[]} */
  get ticked() {
    return this.rows.filter((row) => row.tick.checked).map((row) => row.layer.layer);
  }
}

/** @param {AttendingLayer} layer @returns {AttentionRow} */
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
  const figures = layer.reason
    ? [h("em", {}, layer.reason)]
    : [h("span", { class: "pf-attending-bar", "aria-hidden": "true" }, bar), value];
  const element = h(
    "li",
    { class: layer.reason ? "pf-attending-barred" : "", title: layer.hint },
    tick,
    name,
    h("small", {}, layer.size),
    ...figures,
  );
  return { element, tick, bar, value, layer };
}
