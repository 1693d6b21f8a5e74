/** The view of a training: its curves step by step, what was switched, and its gradients' sizes. */

import { indexAfterKey, onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { threeFigures } from "../shared/format.js";
import { SpokenLine } from "../shared/spoken_line.js";
import {
  bandsOf,
  cellsOf,
  HEAT_HEIGHT,
  indexOfStep,
  rangeWords,
  unpackedTraining,
} from "./layout.js";
import { bandMarks, crossMarks, heatMarks, precisionMarks, switchMarks } from "./marks.js";
import { rankTable } from "./ranks.js";

/** @typedef {import("./layout.js").Training} Training */

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @returns
 * {import("../shared/host.js").View}
 */
export function training(root, host) {
  return new TrainingView(root, host);
}

class TrainingView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host */
  constructor(root, host) {
    this.host = host;
    /** @type {Training | null} */
    this.training = null;
    /** @type {number | null} */
    this.step = null;
    this.layer = host.selected();
    this.head = h("div", { class: "pf-view-head" });
    this.live = new SpokenLine();
    this.news = "";
    this.facts = h("p", { class: "pf-readout" });
    this.figures = h("p", { class: "pf-readout", "aria-hidden": "true" });
    this.drawing = s("svg", {
      class: "pf-svg",
      role: "slider",
      tabindex: "0",
      "aria-label": "step of the training",
    });
    this.cross = s("g", { class: "pf-overlay" });
    this.plot = h("div", { class: "pf-plot" }, this.drawing);
    this.switches = h("ol", { class: "pf-train-switches", "aria-label": "what was switched" });
    this.chosen = h("select", { "aria-label": "layer whose gradient is shown" });
    this.words = h("span", { class: "pf-note" });
    this.heat = s("svg", { class: "pf-svg", role: "img" });
    this.sizes = h(
      "div",
      { class: "pf-train-sizes" },
      h("p", { class: "pf-train-choice" }, h("b", {}, "Gradient sizes"), this.chosen, this.words),
      this.heat,
    );
    this.ranks = h("div", { class: "pf-train-ranks" });
    this.table = h("div", { class: "pf-train-epochs" });
    const parts = [this.head, this.live.element, this.facts, this.figures, this.plot];
    parts.push(this.switches, this.ranks, this.sizes, this.table);
    root.append(h("section", { class: "pf-view pf-train", "aria-label": "training" }, ...parts));
    this.listen();
    this.release = onWidth(this.plot, (width) => this.draw(width));
  }

  listen() {
    set(this.drawing, {
      onpointermove: (event) => this.point(this.stepUnder(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.point(null),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
    });
    set(this.chosen, {
      onchange: () => this.host.select(/** @type {HTMLSelectElement} */ (this.chosen).value),
    });
  }

  /** @param {any} data */
  show(data) {
    this.training = unpackedTraining(data);
    const known = this.training;
    for (const part of [this.plot, this.figures, this.ranks, this.sizes, this.table])
      part.hidden = !known;
    fresh(this.head, h("h2", {}, known?.title ?? "Training"));
    if (!known) {
      this.live.tell("No step has been done yet.", true);
      return;
    }
    this.speak(known);
    fresh(
      this.facts,
      ...known.facts.map(({ name, value }) => h("span", {}, h("b", {}, value), ` ${name}`)),
      ...known.notes.map((note) => h("span", {}, note)),
    );
    fresh(
      this.switches,
      ...known.events.map(({ step, what }) => h("li", {}, h("b", {}, `step ${step}`), ` ${what}`)),
    );
    this.ranks.hidden = known.ranks.length === 0;
    fresh(this.ranks, known.ranks.length ? rankTable(known.ranksTitle, known.ranks) : null);
    this.sizes.hidden = known.rangeSteps.length === 0;
    const names = known.layers.map((layer) =>
      h("option", { value: layer }, known.dead.includes(layer) ? `${layer} · no gradient` : layer),
    );
    fresh(this.chosen, h("option", { value: "" }, "all layers"), ...names);
    fresh(this.table, epochTable(known.epochs));
    this.draw(this.plot.clientWidth);
  }

  /** @param {string} layer */
  select(layer) {
    this.layer = layer;
    this.drawSizes(this.plot.clientWidth);
  }

  destroy() {
    this.release();
  }

  /** The state in a sentence. @param {Training} known */
  speak(known) {
    const losses = known.curves[0].values;
    const loss = threeFigures(losses[losses.length - 1]);
    const last = known.events[known.events.length - 1];
    const state = known.isRunning ? "Running" : "Done";
    const line = `${state}: step ${known.done} of ${known.steps}, loss ${loss}`;
    const news = `${state}, ${known.events.length} switches`;
    this.live.tell(last ? `${line}; last switch: ${last.what}` : line, news !== this.news);
    this.news = news;
  }

  /** @param {number} width */
  draw(width) {
    if (!this.training || width <= 0) return;
    const { height, bands } = bandsOf(width, this.training);
    this.bands = bands;
    set(this.drawing, { width, height, viewBox: `0 0 ${width} ${height}` });
    fresh(
      this.drawing,
      precisionMarks(bands[0], this.training),
      ...bands.map((band) => bandMarks(band, this.training?.every ?? 1)),
      switchMarks(bands, this.training),
      this.cross,
    );
    this.mark();
    this.drawSizes(width);
  }

  /** @param {number} width */
  drawSizes(width) {
    if (!this.training || width <= 0 || !this.training.rangeSteps.length) return;
    const index = this.training.layers.indexOf(this.layer);
    const { x, left, right } = bandsOf(width, this.training);
    const words = rangeWords(this.training, index);
    /** @type {HTMLSelectElement} */ (this.chosen).value = index < 0 ? "" : this.layer;
    fresh(this.words, `last: ${words} · below the dotted line fp16 loses digits`);
    set(this.heat, {
      width,
      height: HEAT_HEIGHT + 6,
      viewBox: `0 -3 ${width} ${HEAT_HEIGHT + 6}`,
      "aria-label": `gradient sizes of ${index < 0 ? "all layers" : this.layer} over the steps; last: ${words}`,
    });
    const cells = cellsOf(this.training, index, x);
    fresh(this.heat, heatMarks(cells, this.training, { left, right }));
  }

  mark() {
    if (!this.training || !this.bands) return;
    const known = this.training;
    const step = Math.min(this.step ?? known.done - 1, known.done - 1);
    const at = indexOfStep(known, step);
    const words = known.curves.map(({ name, values }) => [threeFigures(values[at]), name]);
    fresh(this.cross, this.step === null ? null : crossMarks(this.bands, step));
    fresh(
      this.figures,
      h("span", {}, h("b", {}, `step ${step + 1}`)),
      ...words.map(([value, name]) => h("span", {}, h("b", {}, value), ` ${name}`)),
    );
    set(this.drawing, {
      "aria-valuemin": 1,
      "aria-valuemax": known.done,
      "aria-valuenow": step + 1,
      "aria-valuetext": [
        `step ${step + 1}`,
        ...words.map(([value, name]) => `${name} ${value}`),
      ].join(", "),
    });
  }

  /** @param {number | null} step */
  point(step) {
    this.step = step;
    this.mark();
  }

  /** A slider's keys, a hundredth of the steps at a time. @param {KeyboardEvent} event */
  key(event) {
    if (!this.training) return;
    const { done } = this.training;
    const stride = Math.max(1, Math.floor(done / 100));
    const places = Math.ceil(done / stride);
    /** @type {Record<string, string>} */
    const turned = { ArrowUp: "ArrowRight", ArrowDown: "ArrowLeft" };
    const at = Math.floor((this.step ?? done - 1) / stride);
    const next = indexAfterKey(turned[event.key] ?? event.key, at, places);
    if (event.key === "Escape") this.point(null);
    else if (next !== at) this.point(Math.min(done - 1, next * stride));
    else return;
    event.preventDefault();
  }

  /** @param {PointerEvent} event @returns {number | null} */
  stepUnder(event) {
    const band = this.bands?.[0];
    if (!band || !this.training) return null;
    const x = event.clientX - this.drawing.getBoundingClientRect().left;
    const share = (x - band.x(0)) / (band.x(1) - band.x(0));
    return Math.max(0, Math.min(this.training.done - 1, Math.round(share)));
  }
}

/** The epochs as a table, for reading. @param {Record<string, string>[]} epochs */
function epochTable(epochs) {
  const names = Object.keys(epochs[0] ?? {});
  const rows = epochs.map((epoch) =>
    h(
      "tr",
      {},
      ...names.map((name) => h("td", { class: isText(name) ? "pf-names" : "" }, epoch[name])),
    ),
  );
  return h(
    "table",
    { class: "pf-table", "aria-label": "epochs" },
    h(
      "thead",
      {},
      h("tr", {}, ...names.map((name) => h("th", { class: isText(name) ? "pf-names" : "" }, name))),
    ),
    h("tbody", {}, ...rows),
  );
}

/** @param {string} name */
function isText(name) {
  return name === "what was switched";
}
