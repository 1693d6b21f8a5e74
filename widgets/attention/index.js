/** The sparse attention view: a slider for the share of keys, and a checkbox for each layer. */

import { choiceNote, isSameAttention, keptAlone, keptByRecipe } from "./choice.js";
import { KindField } from "./kind_field.js";
import { AttentionLayers } from "./layers.js";
import { fresh, h } from "../shared/dom.js";
import { unserved } from "../shared/host.js";
import { unpackedPicture } from "../shared/picture.js";
import { PictureSheet } from "../shared/picture_view.js";
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
/** @type {import("./choice.js").AttentionTable} */
const NOT_KNOWN = { kind: "", stops: [], layers: [], able: [] };
const ATTENTION_FOLLOWS = ["state", "requests", "served", "keep", "layers"];

class AttentionView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    this.host = host;
    this.model = model;
    this.table = NOT_KNOWN;
    /** @type {AttentionChoice} */
    this.choice = { index: 0, layers: [] };
    /** @type {AttentionChoice | null} */
    this.known = null;
    this.drawn = "";
    this.chart = new PictureSheet(host, {
      pin: (row) =>
        this.choose(row === null ? this.choice : { ...this.choice, index: this.stopOf(row) }),
    });
    this.layers = new AttentionLayers({
      onTick: (layers) => this.choose({ ...this.choice, layers }),
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
      this.chart.element,
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
    root.append(
      h(
        "section",
        { class: "pf-view pf-attention", "aria-label": "attention to a part of the keys" },
        this.both,
        this.question.element,
      ),
    );
    this.listen();
  }

  listen() {
    this.onChange = () => this.follow();
    for (const name of ATTENTION_FOLLOWS) this.model.on(`change:${name}`, this.onChange);
    this.follow();
  }

  /** @param {any} data */
  show(data) {
    this.table = data?.layers ? data : NOT_KNOWN;
    const { stops, kind } = this.table;
    const chart = unpackedPicture(data?.chart);
    if (chart) this.chart.show(chart);
    this.both.hidden = !this.isKnown;
    this.kind.choose(kind);
    this.layers.show(this.table);
    this.known = null;
    this.choice = {
      index: Math.min(this.choice.index, Math.max(0, stops.length - 1)),
      layers: this.table.able,
    };
    this.drawn = "";
    this.select(this.host.selected() ?? "");
    this.follow();
  }

  /** @param {string} layer */
  select(layer) {
    this.layers.select(layer);
  }

  destroy() {
    this.chart.destroy();
    for (const name of ATTENTION_FOLLOWS) this.model.off(`change:${name}`, this.onChange);
  }

  get isKnown() {
    return this.table !== NOT_KNOWN;
  }

  get isInBench() {
    return Boolean(this.model.get("state"));
  }

  /** Another kind is chosen, whose cost is not known. */
  get isOther() {
    return this.isInBench && this.isKnown && this.kind.chosen !== this.table.kind;
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

  /** The chart goes from the smallest share to the largest. @param {number} row */
  stopOf(row) {
    return this.table.stops.length - 1 - row;
  }

  /** Move the slider when the choice of the recipe or the traits changes; otherwise keep a drag. */
  follow() {
    const { isInBench, table } = this;
    this.question.show(this.isKnown && !this.isOther);
    const known = isInBench ? keptByRecipe(this.model, table) : keptAlone(this.model, table);
    if (known && !isSameAttention(known, this.known)) this.choice = known;
    this.known = known;
    const key = JSON.stringify([
      this.choice,
      known,
      this.isAsked,
      isInBench,
      this.isKnown,
      this.isOther,
      this.taking,
    ]);
    if (key === this.drawn) return;
    this.drawn = key;
    this.tell();
  }

  /** @param {AttentionChoice} choice */
  choose(choice) {
    this.choice = choice;
    if (!this.isInBench) {
      this.model.set("keep", this.table.stops[choice.index].keep);
      this.model.set(
        "layers",
        this.table.able.filter((layer) => choice.layers.includes(layer)),
      );
      this.model.save_changes();
    }
    this.tell();
  }

  /** Show the chosen stop. */
  tell() {
    const { table, choice } = this;
    const stop = table.stops[choice.index];
    if (!stop) return;
    this.chart.place(this.stopOf(choice.index));
    this.layers.place(choice.index, choice.layers);
    this.showTake(stop);
  }

  /** @param {import("./choice.js").AttentionStop} stop */
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
      `${isTaken ? "Keeps" : "Keep"} ${stop.text} of the keys${where}`,
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
}
