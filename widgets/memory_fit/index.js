/**
 * The view of a memory limit: the predicted peak of a call or of a step of training by category,
 * beside the measured one, and what would have to change to stay under a limit that is dragged.
 */

import { fresh, h } from "../shared/dom.js";
import { readableBytes } from "../shared/format.js";
import { unserved } from "../shared/host.js";
import { LimitHandle } from "../shared/limit_handle.js";
import { memoryLimit } from "../shared/memory_limit.js";
import { unpackedPicture } from "../shared/picture.js";
import { PictureSheet } from "../shared/picture_view.js";
import { Question } from "../shared/question.js";
import { segmentedControl } from "../shared/segments.js";
import { limitSentence } from "./layout.js";

/**
 * @typedef {import("./layout.js").Peaks & { picture: any, limit_bytes: number }} Fit
 * @typedef {{ call: Fit | null, training: Fit | null }} FitData
 * @typedef {keyof FitData} Mode
 */

const FOLLOWED = ["state", "requests", "served"];
const QUESTION = {
  query: "memory_fit",
  request: "memory_fit",
  question: "Does it fit into a memory limit, and what would have to change if not?",
  use: "Predicts the peak by category without running anything, and prices each change: a smaller batch, bf16, checkpoints, a fused optimizer, memory used again.",
};
const MODES = /** @type {[Mode, string][]} */ ([
  ["call", "One call"],
  ["training", "A training step"],
]);

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function memoryFit(root, host, model) {
  return new FitView(root, host, model);
}

class FitView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    this.host = host;
    this.model = model;
    this.limit = memoryLimit(model);
    /** @type {FitData | null} */
    this.data = null;
    /** @type {Mode} */
    this.mode = "call";
    this.field = /** @type {HTMLInputElement} */ (
      h("input", {
        type: "text",
        size: 9,
        "aria-label": "memory limit",
        placeholder: "free memory",
        title: "a size such as 8 GB or 512 MB; empty is a safe share of what is free",
      })
    );
    const fields = [h("span", { class: "pf-lead" }, "limit"), this.field];
    const options = () => this.options(this.field.value.trim() || null);
    this.question = new Question(model, host.ask, QUESTION, { fields, options });
    this.choice = segmentedControl("what is run", MODES, (name) => {
      this.mode = /** @type {Mode} */ (name);
      this.draw();
    });
    this.verdict = h("p", { class: "pf-fit-verdict", "aria-live": "polite" });
    this.handle = new LimitHandle(this.limit, "x", (bytes) => limitSentence(this.fit, bytes));
    const press = (/** @type {any} */ request) =>
      unserved(model).some((open) => open.do === request.do) || host.ask(request);
    this.sheet = new PictureSheet(
      host,
      { drawn: () => this.placeLimit() },
      model.get("state")?.queries ? press : null,
    );
    const all = [this.choice.element, this.verdict, this.sheet.element, this.question.element];
    const view = { class: "pf-view pf-fit-view", "aria-label": "memory limit" };
    root.append(h("section", view, ...all));
    this.onChange = () => this.question.show(Boolean(this.fit));
    for (const name of FOLLOWED) model.on(`change:${name}`, this.onChange);
    this.release = this.limit.watch((isDone) => this.onLimit(isDone));
  }

  /** @param {any} data */
  show(data) {
    const before = this.fit;
    this.data = data && "call" in data ? data : null;
    const isAlone = !this.model.get("state")?.queries;
    const other = this.mode === "call" ? "training" : "call";
    if (isAlone && !this.fit && this.data?.[other]) this.mode = other;
    this.choice.element.hidden = isAlone;
    const { fit } = this;
    if (fit && (fit.limit_bytes !== before?.limit_bytes || fit.peak_bytes !== before.peak_bytes))
      this.limit.set(fit.limit_bytes, false);
    this.draw();
  }

  destroy() {
    this.release();
    this.sheet.destroy();
    for (const name of FOLLOWED) this.model.off(`change:${name}`, this.onChange);
  }

  get fit() {
    return this.data?.[this.mode] ?? null;
  }

  /** @param {number | string | null} limit */
  options(limit) {
    return { train: this.mode === "training", limit };
  }

  /** The limit moved, here or in another view; once it is let go, its batches are asked for. */
  onLimit(/** @type {boolean} */ isDone) {
    const { bytes } = this.limit;
    if (document.activeElement !== this.field)
      this.field.value = bytes === null ? "" : readableBytes(bytes);
    this.placeLimit();
    if (isDone && this.fit && this.question.isIdle)
      this.host.ask({ do: QUESTION.request, ...this.options(bytes) });
  }

  draw() {
    this.choice.show(this.mode);
    this.onChange();
    const picture = unpackedPicture(this.fit?.picture);
    this.sheet.element.hidden = this.verdict.hidden = !picture;
    if (picture) this.sheet.show(picture);
    this.placeLimit();
  }

  placeLimit() {
    const { bytes } = this.limit;
    if (!this.fit) return;
    this.handle.over(this.sheet.drawings[0], 0);
    fresh(this.verdict, bytes === null ? "" : limitSentence(this.fit, bytes));
  }
}
