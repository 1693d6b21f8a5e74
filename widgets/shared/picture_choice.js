/** The picture of one layer, of those that a picture has: the selected layer's, or the first. Keys zoom as in the graph. */

import { fresh, h, set } from "./dom.js";
import { PictureDrawing } from "./picture_drawing.js";

/** @typedef {import("./picture.js").Picture} Picture */

export class LayerChoice {
  /** @param {import("./host.js").Host} host */
  constructor(host) {
    this.host = host;
    this.selected = host.selected();
    /** @type {Picture | null} */
    this.picture = null;
    this.drawing = new PictureDrawing(host);
    this.name = h("b", {});
    this.words = h("span", {});
    this.field = /** @type {HTMLSelectElement} */ (h("select", {}));
    set(this.field, { onchange: () => host.select(this.field.value) });
    const line = h("p", { class: "pf-pic-choice" }, this.name, this.field, this.words);
    this.element = h("div", {}, line, this.drawing.element);
  }

  /** @param {Picture} picture */
  show(picture) {
    const { by_layer: layers, choice } = picture;
    this.picture = picture;
    this.element.hidden = !layers.length;
    if (!layers.length) return;
    fresh(this.name, choice);
    set(this.field, { "aria-label": `layer of the ${choice}` });
    const names = layers.map(([layer, { title }]) => h("option", { value: layer }, title));
    const isNew = names.some((name, row) => name.textContent !== this.field.options[row]?.text);
    // options that are replaced would close an open list
    if (isNew || names.length !== this.field.options.length) fresh(this.field, ...names);
    this.select(this.selected);
  }

  /** @param {string} layer */
  select(layer) {
    this.selected = layer;
    const layers = this.picture?.by_layer ?? [];
    const [shown, picture] = layers.find(([name]) => name === layer) ?? layers[0] ?? [];
    if (shown === undefined || !picture) return;
    this.field.value = shown;
    fresh(this.words, picture.sentence);
    this.drawing.show(picture);
  }

  /**
   * + zooms on a layer that is pointed at, or on the nearest around it that has a picture; − on the
   * one around that which is shown, 0 ends it. @param {KeyboardEvent} event @param {string} [pointed]
   */
  zoom(event, pointed = this.selected) {
    const names = (this.picture?.by_layer ?? []).map(([name]) => name);
    if (event.ctrlKey || event.metaKey || event.altKey || !names.length) return;
    const around = (/** @type {string} */ layer) =>
      names.reduce(
        (best, name) => (layer.startsWith(`${name}.`) && name.length > best.length ? name : best),
        "",
      );
    const into = names.includes(pointed) ? pointed : around(pointed) || pointed;
    /** @type {Record<string, string>} */
    const next = { "+": into, "=": into, "-": around(this.field.value), 0: "" };
    if (!(event.key in next)) return;
    event.preventDefault();
    this.host.select(next[event.key]);
  }

  destroy() {
    this.drawing.destroy();
  }
}
