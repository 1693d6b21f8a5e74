/** The sparse attention view: a slider for the share of keys, and a checkbox for each layer. */

import { choiceNote, isSameAttention, keptAlone, keptByRecipe } from "./choice.js";
import { KindField } from "./kind_field.js";
import { attentionFrame, nearestStop } from "./layout.js";
import { AttentionLayers } from "./layers.js";
import { attentionChart, stopMarks } from "./marks.js";
import { keepText, stopFigures, stopWords, unpackedAttention } from "./table.js";
import { onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { unserved } from "../shared/host.js";
import { Question } from "../shared/question.js";
import { showPress } from "../shared/press.js";

/** @typedef {import("./choice.js").AttentionChoice} AttentionChoice */

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function attention(root, host, model) {
  return new AttentionView(root, host, model);
}

const QUESTION = {
  query: "attention",
  request: "attention_cost",
  question: "What is lost, and gained, if each token looks at a part of the others only?",
  use: "A slider then sets the part, the share of keys that is kept; a tick takes a layer out of it.",
};
const ATTENTION_FOLLOWS = ["state", "requests", "served", "keep", "layers"];
const THUMB = 8; // half of the slider's, by which its ends stand off

class AttentionView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    this.host = host;
    this.model = model;
    this.table = unpackedAttention({});
    /** @type {AttentionChoice} */
    this.choice = { index: 0, layers: [] };
    /** @type {AttentionChoice | null} */
    this.known = null;
    this.frame = /** @type {import("./layout.js").AttentionFrame | null} */ (null);
    this.drawn = "";
    this.title = h("h2", {});
    this.note = h("p", { class: "pf-note" });
    this.figures = h("dl", { class: "pf-attention-figures" });
    this.slider = /** @type {HTMLInputElement} */ (
      h("input", {
        type: "range",
        min: 0,
        step: 1,
        class: "pf-attention-slider",
        "aria-label": "share of the keys that is kept",
      })
    );
    this.drawing = s("svg", { class: "pf-svg", "aria-hidden": "true" });
    this.overlay = s("g", { class: "pf-overlay" });
    this.plot = h("div", { class: "pf-plot" }, this.drawing, this.slider);
    this.layers = new AttentionLayers({
      onTick: (layers) => this.choose({ ...this.choice, layers }, true),
      onLayer: (layer) => this.host.select(layer),
    });
    this.take = h("button", {
      type: "button",
      class: "pf-button pf-primary",
      onclick: () => this.apply(),
    });
    this.remark = h("p", { class: "pf-note", role: "status" });
    this.both = h(
      "div",
      { class: "pf-attention-both" },
      h("div", {}, this.figures, this.plot),
      h(
        "div",
        { class: "pf-attention-side" },
        this.layers.element,
        h("div", { class: "pf-attention-take" }, this.take, this.remark),
      ),
    );
    this.kind = new KindField(() => this.follow());
    this.question = new Question(model, host.ask, QUESTION, {
      fields: this.kind.fields,
      options: () => ({ kind: this.kind.chosen }),
    });
    this.head = h(
      "div",
      { class: "pf-view-head" },
      h("div", { class: "pf-heat-titles" }, this.title, this.note),
    );
    root.append(
      h(
        "section",
        { class: "pf-view pf-attention", "aria-label": "attention to a part of the keys" },
        this.head,
        this.both,
        this.question.element,
      ),
    );
    this.listen();
  }

  listen() {
    this.onChange = () => this.follow();
    for (const name of ATTENTION_FOLLOWS) this.model.on(`change:${name}`, this.onChange);
    this.slider.addEventListener("input", () =>
      this.choose({ ...this.choice, index: this.indexOfSlider }, false),
    );
    this.slider.addEventListener("change", () =>
      this.choose({ ...this.choice, index: this.indexOfSlider }, true),
    );
    this.drawing.addEventListener("click", (event) => this.onClick(event));
    this.release = onWidth(this.plot, (width) => this.draw(width));
    this.follow();
  }

  /** @param {any} data */
  show(data) {
    this.table = unpackedAttention(data);
    const { isKnown, title, note, stops, layers, kind } = this.table;
    fresh(this.title, title);
    fresh(
      this.note,
      isKnown &&
        (note ||
          (layers.length
            ? "The same share is kept in every layer that takes part."
            : "No layer of this model attends.")),
    );
    this.head.hidden = !isKnown;
    this.both.hidden = !layers.length;
    this.kind.choose(kind);
    set(this.slider, { max: Math.max(0, stops.length - 1) });
    this.slider.disabled = stops.length < 2;
    this.layers.show(this.table);
    this.known = null;
    this.choice = {
      index: Math.min(this.choice.index, Math.max(0, stops.length - 1)),
      layers: this.table.able,
    };
    this.drawn = "";
    this.draw(this.plot.clientWidth);
    this.select(this.host.selected() ?? "");
    this.follow();
  }

  /** @param {string} layer */
  select(layer) {
    this.layers.select(layer);
  }

  destroy() {
    this.release?.();
    for (const name of ATTENTION_FOLLOWS) this.model.off(`change:${name}`, this.onChange);
  }

  get isInBench() {
    return Boolean(this.model.get("state"));
  }

  /** Another kind is chosen, whose cost is not known. */
  get isOther() {
    return this.isInBench && this.table.isKnown && this.kind.chosen !== this.table.kind;
  }

  /**
   * The layers that are sparse in the applied recipe; undefined until it is applied.
   * @returns {string[] | undefined}
   */
  get taking() {
    return this.model.get("state")?.taking_part?.[this.table.kind];
  }

  get isAsked() {
    return unserved(this.model).some((request) => request.do === "attention");
  }

  /** The slider goes from the smallest share to the largest, as the chart above it. */
  get indexOfSlider() {
    return this.table.stops.length - 1 - Number(this.slider.value);
  }

  /** Move the slider when the choice of the recipe or the traits changes; otherwise keep a drag. */
  follow() {
    const { isInBench, table } = this;
    this.question.show(table.isKnown && !this.isOther);
    const known = isInBench ? keptByRecipe(this.model, table) : keptAlone(this.model, table);
    if (known && !isSameAttention(known, this.known)) this.choice = known;
    this.known = known;
    const key = JSON.stringify([
      this.choice,
      known,
      this.isAsked,
      isInBench,
      table.isKnown,
      this.isOther,
      this.taking,
    ]);
    if (key === this.drawn) return;
    this.drawn = key;
    this.tell();
  }

  /** @param {AttentionChoice} choice @param {boolean} isSettled the slider was let go */
  choose(choice, isSettled) {
    this.choice = choice;
    if (isSettled && !this.isInBench) {
      this.model.set("keep", this.table.stops[choice.index].keep);
      this.model.set(
        "layers",
        this.table.able.filter((layer) => choice.layers.includes(layer)),
      );
      this.model.save_changes();
    }
    this.tell();
  }

  /** @param {number} width */
  draw(width) {
    const { stops } = this.table;
    if (!stops.length || width <= 0) return;
    const frame = attentionFrame(width, stops);
    this.frame = frame;
    set(this.drawing, { width, height: frame.height, viewBox: `0 0 ${width} ${frame.height}` });
    this.slider.style.marginLeft = `${frame.left - THUMB}px`;
    this.slider.style.width = `${frame.right - frame.left + 2 * THUMB}px`;
    fresh(this.drawing, attentionChart(frame, stops), this.overlay);
    this.tell();
  }

  /** Show the figures of the chosen stop. */
  tell() {
    const { table, choice } = this;
    const stop = table.stops[choice.index];
    if (!stop) return;
    this.slider.value = String(table.stops.length - 1 - choice.index);
    set(this.slider, { "aria-valuetext": stopWords(table, stop) });
    const figures = [
      { value: keepText(stop.keep), name: "of the keys kept", note: "", look: "" },
      ...stopFigures(table, stop),
    ];
    fresh(
      this.figures,
      ...figures.map(({ value, name, note, look }) =>
        h(
          "div",
          {},
          h("dd", { class: look || null }, value),
          h("dt", { class: look || null }, name),
          h("small", {}, note),
        ),
      ),
    );
    if (this.frame) fresh(this.overlay, ...stopMarks(this.frame, choice.index));
    this.layers.place(choice.index, choice.layers);
    this.showTake(stop);
  }

  /** @param {import("./table.js").AttentionStop} stop */
  showTake(stop) {
    const { choice, table } = this;
    const isTaken = this.isInBench && isSameAttention(this.known, choice);
    const isPart = choice.layers.length < table.able.length;
    const where = isPart ? ` in ${choice.layers.length} of ${table.able.length} layers` : "";
    this.take.hidden = !this.isInBench;
    showPress(
      this.take,
      !isTaken && choice.layers.length > 0 && !this.isOther,
      this.isAsked,
      `${isTaken ? "Keeps" : "Keep"} ${keepText(stop.keep)} of the keys${where}`,
    );
    const { isInBench, isOther, taking } = this;
    fresh(this.remark, choiceNote(table, choice, { isInBench, isTaken, isOther, taking }));
  }

  apply() {
    const { choice, table } = this;
    if (this.take.getAttribute("aria-disabled") === "true") return;
    this.host.ask({
      do: "attention",
      kind: table.kind,
      keep: table.stops[choice.index].keep,
      layers: table.able.filter((layer) => choice.layers.includes(layer)),
    });
  }

  /** @param {MouseEvent} event */
  onClick(event) {
    if (!this.frame) return;
    const box = this.drawing.getBoundingClientRect();
    this.choose({ ...this.choice, index: nearestStop(this.frame, event.clientX - box.left) }, true);
  }
}
