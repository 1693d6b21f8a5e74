/**
 * The sensitivity view: the predicted and measured cost of each format of each layer; a click on a
 * cell chooses it.
 */

import { HoverCard } from "../shared/chart.js";
import { chosenFormats, whyNot } from "./chosen_formats.js";
import { fresh, h } from "../shared/dom.js";
import { heatLegend } from "./heat_cells.js";
import { HeatGrid } from "./heat_grid.js";
import { unpackedPicture } from "../shared/picture.js";
import { PictureSheet } from "../shared/picture_view.js";
import { Question } from "../shared/question.js";
import {
  cellFigures,
  cellRemark,
  predictedAt,
  quantityOf,
  sensitivityLine,
  unpackedSensitivity,
} from "./table.js";

const QUESTION = {
  query: "sensitivity",
  request: "sensitivity",
  question: "What does each layer lose in lower precision?",
  use: "Shows where bf16 or int8 costs nothing that can be seen; a click on a cell then chooses it.",
};

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function sensitivity(root, host, model) {
  return new SensitivityView(root, host, model);
}

class SensitivityView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    this.host = host;
    this.model = model;
    this.table = unpackedSensitivity({});
    this.title = h("h2", {});
    this.line = h("p", { class: "pf-note" });
    this.legend = h("div", { class: "pf-heat-legends" });
    this.status = h("p", { class: "pf-note pf-heat-said", role: "status" });
    this.question = new Question(model, host.ask, QUESTION);
    this.grid = new HeatGrid({
      onChoose: (layer, format) => this.choose(layer, format),
      onPoint: (place, cell) => this.point(place, cell),
      chosen: () => chosenFormats(model),
      whyNot: (layer, format) => this.whyNot(layer, format),
    });
    this.agreement = new PictureSheet(host);
    this.selected = host.selected();
    this.maps = h("div", { class: "pf-heat-map" }, this.grid.element, this.status);
    this.both = h("div", { class: "pf-heat-both" }, this.maps, this.agreement.element);
    this.card = new HoverCard(this.both);
    this.head = h(
      "div",
      { class: "pf-view-head" },
      h("div", { class: "pf-heat-titles" }, this.title, this.line),
      this.legend,
    );
    root.append(
      h(
        "section",
        { class: "pf-view pf-sensitivity", "aria-label": "sensitivity" },
        this.head,
        this.both,
        this.question.element,
      ),
    );
    this.listen();
  }

  listen() {
    /** @type {string} */
    this.drawn = "";
    this.onChange = () => this.follow();
    for (const name of ["state", "requests", "served", "chosen"])
      this.model.on(`change:${name}`, this.onChange);
    this.follow();
  }

  /** @param {any} data */
  show(data) {
    this.table = unpackedSensitivity(data);
    const { isKnown, title, scale } = this.table;
    fresh(this.title, title);
    fresh(this.line, isKnown && sensitivityLine(this.table));
    fresh(this.legend, isKnown && heatLegend(scale, quantityOf(this.table)));
    this.head.hidden = this.both.hidden = !isKnown;
    this.grid.show(this.table);
    const agreement = unpackedPicture(data?.agreement);
    if (agreement) this.agreement.show(agreement);
    this.follow();
  }

  /** @param {string} layer */
  select(layer) {
    this.selected = layer;
    this.grid.select(layer);
    this.agreement.select(layer);
  }

  destroy() {
    for (const name of ["state", "requests", "served", "chosen"])
      this.model.off(`change:${name}`, this.onChange);
    this.grid.destroy();
    this.agreement.destroy();
  }

  get isInBench() {
    return Boolean(this.model.get("state"));
  }

  /** Show the choice, and how far the query is, if either changed. */
  follow() {
    this.question.show(this.table.isKnown);
    const { chosen, asked } = chosenFormats(this.model);
    const state = this.model.get("state");
    const key = JSON.stringify([
      chosen,
      [...asked],
      this.isInBench,
      this.table.isKnown,
      state?.cannot_in,
    ]);
    if (key === this.drawn) return;
    this.drawn = key;
    this.grid.refresh();
    const count = Object.keys(chosen).filter((layer) => chosen[layer]).length;
    fresh(this.status, this.isInBench ? "" : aloneWords(count));
  }

  /** @param {string} layer @param {string} format */
  whyNot(layer, format) {
    if (!this.table.choices.includes(format)) return "this format can be looked at, and not run";
    return whyNot(this.model.get("state"), layer, format);
  }

  /**
   * Choose a layer, and a format for it if possible; a chosen format is withdrawn.
   * @param {string} layer @param {string} format
   */
  choose(layer, format) {
    this.host.select(layer);
    const row = this.table.place.get(layer) ?? -1;
    if (!format || Number.isNaN(predictedAt(this.table, row, format)) || this.whyNot(layer, format))
      return;
    const isTaken = chosenFormats(this.model).chosen[layer] === format;
    this.host.ask({ do: "precision", layer, name: isTaken ? "" : format });
  }

  /** @param {import("./heat_grid.js").HeatPlace | null} place @param {Element | null} cell */
  point(place, cell) {
    this.agreement.select(place ? this.table.layers[place.row] : this.selected);
    if (!place || !cell) return this.card.hide();
    const { table } = this;
    const [layer, format] = [table.layers[place.row], table.formats[place.column]];
    const line = [`${format} in ${table.kind[place.row]}`, cellRemark(table, place.row, format)];
    const figures = cellFigures(table, place.row, format);
    this.card.show(spotIn(this.both, cell), layer, line.filter(Boolean).join(" · "), [
      ...figures,
      ["", this.clickWords(place)],
    ]);
  }

  /** The effect of a click on a cell. @param {import("./heat_grid.js").HeatPlace} place */
  clickWords({ row, column }) {
    const [layer, format] = [this.table.layers[row], this.table.formats[column]];
    const barred = Number.isNaN(predictedAt(this.table, row, format))
      ? "its cost is unknown"
      : this.whyNot(layer, format);
    if (barred) return `cannot be chosen: ${barred}`;
    return chosenFormats(this.model).chosen[layer] === format
      ? "chosen; a click gives it up"
      : "a click chooses it";
  }
}

/** The middle of a cell as seen from a box. @param {HTMLElement} box @param {Element} cell */
function spotIn(box, cell) {
  const [outer, inner] = [box.getBoundingClientRect(), cell.getBoundingClientRect()];
  const [x, y] = [inner.width / 2, inner.height / 2];
  return { x: inner.left - outer.left + x, y: inner.top - outer.top + y };
}

/** @param {number} count */
function aloneWords(count) {
  if (!count) return "A click on a cell chooses that format for the layer.";
  const layers = count === 1 ? "layer is" : "layers are";
  return `${count} ${layers} chosen: panel.chosen holds them, panel.recipe applies them.`;
}
