/** The share of each layer that is kept, and one threshold for all layers. */

import { fresh, h, set } from "../shared/dom.js";
import { afterRest } from "../shared/pause.js";
import { figuresAt, unpackedColumns, unpackedPicture } from "../shared/picture.js";
import { PictureDrawing } from "../shared/picture_drawing.js";
import { scrolledTo } from "../shared/row_window.js";
import { isAsked, LiveThreshold, thresholdAt } from "./live.js";

export class AllLayers {
  /** @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(host, model) {
    this.model = model;
    /** @type {import("../shared/picture.js").Handle | null} */
    this.handle = null;
    /** @type {string[]} */
    this.layers = [];
    this.shown = /** @type {any} */ (null);
    /** The start of a gesture; null between gestures. @type {string | null} */
    this.before = null;
    this.isByKey = false;
    this.live = new LiveThreshold(host, model);
    this.rest = afterRest(() => this.settle());
    this.drawing = new PictureDrawing(host);
    this.summary = h("p", { class: "pf-channels-said" });
    const name = "one threshold for all layers";
    this.slider = /** @type {HTMLInputElement} */ (
      h("input", { type: "range", min: 0, class: "pf-kept-slider", "aria-label": name })
    );
    const label = h("label", { class: "pf-kept-label" }, h("span", {}, name), this.slider);
    this.list = h("div", { class: "pf-kept-list" }, this.drawing.element);
    this.element = h("div", {}, this.summary, label, this.list);
    set(this.slider, {
      oninput: () => this.move(),
      onpointerdown: () => (this.isByKey = false),
      onkeydown: () => (this.isByKey = true),
      onchange: () => (this.isByKey ? this.rest.wait() : this.settle()),
    });
  }

  /** @param {any} data a packed importance */
  take(data) {
    this.layers = data?.layer ?? [];
    this.handle = data?.all ? unpackedColumns(data.all) : null;
    const last = (this.handle?.at.length ?? 1) - 1;
    set(this.slider, { max: last, disabled: last < 1 });
    this.follow();
  }

  /** @param {string} layer */
  select(layer) {
    this.drawing.select(layer);
    const [row, height] = [this.layers.indexOf(layer), this.list.scrollHeight];
    if (row < 0 || !height) return;
    const { scrollTop, clientHeight } = this.list;
    this.list.scrollTop = scrolledTo(scrollTop, clientHeight, height / this.layers.length, row);
  }

  /** Show what Python told of the cut, except the slider that is under a hand. */
  follow() {
    const { summary, stop, shares } = this.model.get("cut") ?? {};
    if (!summary) return;
    if (shares !== this.shown) this.drawing.show(unpackedPicture(shares));
    this.shown = shares;
    if (this.before !== null) return;
    fresh(this.summary, h("b", {}, summary));
    if (!isAsked(this.model)) this.slider.value = String(stop);
    set(this.slider, { "aria-valuetext": summary });
  }

  destroy() {
    this.live.destroy();
    this.rest.drop();
    this.drawing.destroy();
  }

  /** What is chosen where the slider stands. */
  get threshold() {
    return this.handle && thresholdAt(this.handle, Number(this.slider.value), "");
  }

  move() {
    const { handle, threshold } = this;
    if (!handle || !threshold) return;
    this.rest.drop();
    this.before ??= this.slider.value;
    this.live.tell(threshold);
    const words = figuresAt(handle.figures, Number(this.slider.value));
    const [what, more] = words.map((parts) => parts.join(" "));
    fresh(this.summary, h("b", {}, what), h("span", {}, ` · at ${more}`));
    set(this.slider, { "aria-valuetext": `${what}, at ${more}` });
  }

  settle() {
    this.rest.drop();
    if (this.before === null) return;
    this.before = null;
    this.live.end(this.threshold);
  }
}
