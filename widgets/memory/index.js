/**
 * The memory view: live bytes over a call, stacked by layers or by category, under the limit, and a
 * map of what is alive at one moment, by default the peak.
 */

import { h } from "../shared/dom.js";
import { readableBytes } from "../shared/format.js";
import { LimitHandle } from "../shared/limit_handle.js";
import { memoryLimit } from "../shared/memory_limit.js";
import { unpackedPicture } from "../shared/picture.js";
import { PictureSheet } from "../shared/picture_view.js";
import { Question } from "../shared/question.js";
import { segmentedControl } from "../shared/segments.js";
import { throttle } from "../shared/throttle.js";

/** @typedef {"layer" | "category"} Mode */

const PINNED_EVERY_MS = 100; // a key that is held down pins many
const FOLLOWED = ["state", "requests", "served"];
const QUESTION = {
  query: "memory",
  request: "memory",
  question: "What is in memory during a call, and which layers hold it at the peak?",
  use: "Shows the current model's memory over time, and its peak as a map of layers.",
};
const MODES = /** @type {[string, string][]} */ ([
  ["layer", "By layer"],
  ["category", "By category"],
]);

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function memory(root, host, model) {
  return new MemoryView(root, host, model);
}

class MemoryView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    this.model = model;
    this.limit = memoryLimit(model);
    /** @type {any} */
    this.data = null;
    /** @type {Mode} */
    this.mode = "layer";
    this.question = new Question(model, host.ask, QUESTION);
    this.choice = segmentedControl("what the bytes are stacked by", MODES, (name) => {
      this.mode = /** @type {Mode} */ (name);
      this.draw();
    });
    this.handle = new LimitHandle(this.limit, "y", (bytes) => this.limitWords(bytes));
    const ask = throttle(PINNED_EVERY_MS, (/** @type {number | null} */ row) =>
      host.ask({ do: "memory_moment", row }),
    );
    this.sheet = new PictureSheet(host, {
      pin: ask.tell,
      drawn: () => this.placeLimit(),
    });
    const all = [this.choice.element, this.sheet.element, this.question.element];
    root.append(h("section", { class: "pf-view pf-memory-view", "aria-label": "memory" }, ...all));
    this.onChange = () => this.question.show(Boolean(this.data));
    for (const name of FOLLOWED) model.on(`change:${name}`, this.onChange);
    this.release = this.limit.watch(() => this.placeLimit());
  }

  /** @param {any} data */
  show(data) {
    const hadMoment = Number.isInteger(this.data?.row);
    this.data = data?.layer ? data : null;
    this.choice.element.hidden = this.sheet.element.hidden = !this.data;
    this.onChange();
    this.draw();
    if (hadMoment && !Number.isInteger(this.data?.row)) this.sheet.place(null); // another call
  }

  draw() {
    const picture = this.data && unpackedPicture(this.data[this.mode]);
    this.choice.show(this.mode);
    if (picture) this.sheet.show(picture);
  }

  /** @param {string} layer */
  select(layer) {
    this.sheet.select(layer);
  }

  destroy() {
    for (const name of FOLLOWED) this.model.off(`change:${name}`, this.onChange);
    this.sheet.destroy();
    this.release();
  }

  /** The bytes that count towards the limit and are not on the axis: the inputs, or also weights. */
  get offAxis() {
    const beside = this.model.get("state")?.inputs_bytes ?? 0;
    return beside + (this.mode === "layer" ? this.data.weights_bytes : 0);
  }

  /** The limit stands over the curve. */
  placeLimit() {
    if (this.data) this.handle.over(this.sheet.drawings[0], this.offAxis);
  }

  /** @param {number} bytes */
  limitWords(bytes) {
    if (!this.data) return "";
    const weights = this.mode === "category" ? this.data.weights_bytes : 0;
    const over = this.data.peak_bytes + weights + this.offAxis - bytes;
    return over > 0 ? `the call holds ${readableBytes(over)} more` : "the call stays under it";
  }
}
