/**
 * The view of a memory limit: the predicted peak of a call or of a step of training by category,
 * beside the measured one, and what would have to change to stay under a limit that is dragged.
 */

import { fresh, h, set } from "../shared/dom.js";
import { readableBytes } from "../shared/format.js";
import { unserved } from "../shared/host.js";
import { LimitHandle } from "../shared/limit_handle.js";
import { bytesOf, memoryLimit } from "../shared/memory_limit.js";
import { plainTable } from "../shared/plain_table.js";
import { Question } from "../shared/question.js";
import { segmentedControl } from "../shared/segments.js";
import { fitRows, limitSentence, reachOfRows } from "./layout.js";
import { categoryKeys, drawFitRows } from "./table.js";

/** @typedef {import("./layout.js").FitData} FitData */
/** @typedef {import("./layout.js").Mode} Mode */

const FOLLOWED = ["state", "requests", "served"];
const NOT_A_SIZE = "a size such as 8 GB or 512 MB";
const QUESTION = {
  query: "memory_fit",
  request: "memory_fit",
  question: "Does it fit into a memory limit, and what would have to change if not?",
  use: "Predicts the peak by category without running anything, and prices each change: a smaller batch, bf16, checkpoints, a fused optimizer, memory used again.",
};

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
    /** @type {import("./layout.js").FitRow[]} */
    this.rows = [];
    this.answer = "";
    this.reach = 0;
    this.field = /** @type {HTMLInputElement} */ (
      h("input", {
        type: "text",
        size: 9,
        "aria-label": "memory limit",
        placeholder: "free memory",
      })
    );
    this.field.title = `${NOT_A_SIZE}; empty is a safe share of what is free`;
    const fields = [h("span", { class: "pf-lead" }, "limit"), this.field];
    this.question = new Question(model, host.ask, QUESTION, {
      fields,
      options: () => this.options(),
    });
    const modes = /** @type {[string, string][]} */ ([
      ["call", "One call"],
      ["training", "A training step"],
    ]);
    this.choice = segmentedControl("what is run", modes, (name) =>
      this.setMode(/** @type {Mode} */ (name)),
    );
    this.title = h("h2", {});
    this.sentence = h("p", { class: "pf-reason" });
    this.verdict = h("p", { class: "pf-fit-verdict", "aria-live": "polite" });
    this.handle = new LimitHandle(this.limit, "x", (bytes) => limitSentence(this.rows, bytes));
    this.body = h("tbody", {});
    this.legend = h("div", { class: "pf-legend", "aria-hidden": "true" });
    this.categories = h("div", {});
    this.note = h("p", { class: "pf-note" });
    this.table = h("table", { class: "pf-table pf-fit", "aria-label": "peaks under the limit" });
    const more = h("details", {}, h("summary", {}, "by category, as a table"), this.categories);
    this.known = [this.sentence, this.verdict, this.table, this.legend, more, this.note];
    this.build(root);
    this.release = this.limit.watch((isDone) => this.onLimit(isDone));
  }

  /** @param {HTMLElement} root */
  build(root) {
    const track = h("div", { class: "pf-fit-track" }, this.handle.element);
    const head = h(
      "tr",
      {},
      h("th", { scope: "col", class: "pf-names" }, "peak"),
      h("th", { scope: "col", class: "pf-fit-bar" }, track),
      h("th", { scope: "col" }, "bytes"),
      h("th", { scope: "col", class: "pf-names" }, "the limit"),
      h("th", { scope: "col" }, "largest batch"),
      h("th", { scope: "col" }, "time"),
      h("td", {}),
    );
    this.table.append(h("thead", {}, head), this.body);
    this.head = h("div", { class: "pf-view-head" }, this.title, this.choice.element);
    const all = [this.head, ...this.known, this.question.element];
    root.append(
      h("section", { class: "pf-view pf-fit-view", "aria-label": "memory limit" }, ...all),
    );
    this.onChange = () => this.follow();
    for (const name of FOLLOWED) this.model.on(`change:${name}`, this.onChange);
    this.field.addEventListener("change", () => this.onField());
  }

  /** @param {any} data */
  show(data) {
    this.data = data && "call" in data ? data : null;
    const other = this.mode === "call" ? "training" : "call";
    const isAlone = !this.model.get("state")?.queries;
    if (isAlone && !this.data?.[this.mode] && this.data?.[other]) this.mode = other;
    this.choice.element.hidden = isAlone;
    const fit = this.data?.[this.mode];
    const answer = fit ? `${fit.title} ${fit.limit_bytes}` : "";
    if (fit && answer !== this.answer) this.setLimit(fit.limit_bytes);
    this.answer = answer;
    this.draw();
  }

  destroy() {
    this.release();
    for (const name of FOLLOWED) this.model.off(`change:${name}`, this.onChange);
  }

  /** @param {Mode} mode */
  setMode(mode) {
    this.mode = mode;
    this.draw();
  }

  /** The options of the request; null if the field holds no size. */
  options() {
    const text = this.field.value.trim();
    const limit = text ? bytesOf(text) : null;
    this.field.setCustomValidity(text && limit === null ? `Type ${NOT_A_SIZE}.` : "");
    if (!this.field.reportValidity()) return null;
    return { train: this.mode === "training", limit };
  }

  /** @param {number | null} bytes */
  setLimit(bytes) {
    this.limit.set(bytes, false);
  }

  onField() {
    this.field.setCustomValidity("");
    const bytes = bytesOf(this.field.value);
    if (bytes !== null) this.setLimit(bytes);
  }

  /** The limit moved, here or in another view; once it is let go, the batches are asked for. */
  onLimit(/** @type {boolean} */ isDone) {
    if (document.activeElement !== this.field)
      this.field.value = this.limit.bytes === null ? "" : readableBytes(this.limit.bytes);
    this.draw();
    if (!isDone || !this.data?.[this.mode] || !this.question.isIdle) return;
    const options = { train: this.mode === "training", limit: this.limit.bytes };
    this.host.ask({ do: QUESTION.request, ...options });
  }

  follow() {
    this.question.show(Boolean(this.data?.[this.mode]));
    this.drawRows();
  }

  draw() {
    this.choice.show(this.mode);
    const fit = this.data?.[this.mode] ?? null;
    for (const part of this.known) part.hidden = !fit;
    this.question.show(Boolean(fit));
    fresh(this.title, fit?.title ?? "");
    fresh(this.sentence, fit?.sentence ?? "");
    fresh(this.note, fit?.note ?? "");
    this.rows = this.data && fit ? fitRows(this.data, this.mode) : [];
    fresh(this.legend, ...categoryKeys(fit?.held ?? []));
    fresh(this.categories, fit && this.categoryTable(fit));
    this.drawRows();
  }

  drawRows() {
    const fit = this.data?.[this.mode];
    if (!fit) return;
    const { bytes } = this.limit;
    if (!this.handle.isMoving || !this.reach) this.reach = reachOfRows(this.rows, bytes);
    this.handle.place(0, this.reach);
    fresh(this.verdict, bytes === null ? "" : limitSentence(this.rows, bytes));
    set(this.verdict, { "aria-live": this.handle.isMoving ? "off" : "polite" });
    const open = /** @type {any[]} */ (unserved(this.model));
    const asked = open.filter((request) => request.do === "choose").map((request) => request.step);
    const isInBench = Boolean(this.model.get("state")?.queries);
    drawFitRows(this.body, this.rows, {
      reach: this.reach,
      limit: bytes,
      isStale: bytes !== fit.limit_bytes,
      asked,
      choose: isInBench ? (step) => this.host.ask({ do: "choose", step }) : null,
    });
  }

  /** @param {import("./layout.js").Fit} fit */
  categoryTable(fit) {
    const measured = new Map(this.mode === "call" ? this.data?.measured : []);
    const rows = fit.held.map(([name, bytes]) => ({
      category: name,
      predicted: readableBytes(bytes),
      ...(measured.size && {
        measured: measured.has(name) ? readableBytes(measured.get(name)) : "–",
      }),
      "what it is": this.data?.about[name] ?? "",
    }));
    const caption = `the predicted peak by category, batch ${fit.batch}`;
    return plainTable({ caption, rows, words: ["category", "what it is"] });
  }
}
