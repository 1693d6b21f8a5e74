/** The channels of one layer under a threshold, and what the cut saves. */

import { freshId } from "../shared/chart.js";
import { fresh, h, set } from "../shared/dom.js";
import { unpackedPicture } from "../shared/picture.js";
import { PictureDrawing } from "../shared/picture_drawing.js";
import { PredictionTable } from "../shared/prediction_table.js";
import { isAsked, LiveThreshold, thresholdAt } from "./live.js";

/** @typedef {import("../shared/picture.js").Picture} Picture */

export class ChannelChoice {
  /** @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(host, model) {
    this.model = model;
    this.layer = "";
    /** @type {Map<string, Picture>} */
    this.pictures = new Map();
    this.live = new LiveThreshold(host, model);
    this.drawing = new PictureDrawing(host, {
      move: (row) => this.live.tell(this.at(row)),
      settle: (row) => this.live.end(row === null ? null : this.at(row)),
      drawn: () => this.follow(), // a line that is drawn late stands where Python has it
    });
    this.line = h("p", { class: "pf-channels-said", id: freshId("line") });
    this.note = h("p", { class: "pf-note" });
    this.table = new PredictionTable("what the cut gives, predicted and achieved", "whole model");
    this.remark = h("p", { class: "pf-note" });
    this.element = h("div", { class: "pf-channels" }, this.line, this.drawing.element, this.note);
    this.forecast = h("div", { class: "pf-forecast" }, this.table.element, this.remark);
  }

  /** The layer's picture, if it has one. */
  get picture() {
    return this.pictures.get(this.layer) ?? null;
  }

  /** @param {any} data a packed importance; nothing before it is known */
  take(data) {
    this.drawing.handle.settle(); // what was moved was moved on the picture before
    this.pictures = new Map(unpackedPicture(data?.picture)?.by_layer);
    this.choose(this.layer);
  }

  /** @param {string} layer */
  choose(layer) {
    if (layer !== this.layer) this.drawing.handle.settle();
    this.layer = layer;
    const { picture, drawing } = this;
    drawing.show(picture);
    if (drawing.drawing) set(drawing.drawing, { "aria-describedby": this.line.id });
    fresh(this.note, picture?.note);
    this.note.hidden = !picture?.note;
    this.follow();
  }

  /** Show what Python told of the cut, except the line that is under a hand. */
  follow() {
    const { kept, rows, line, note, waiting } = this.model.get("cut") ?? {};
    this.forecast.hidden = !rows || !this.pictures.size;
    this.table.element.hidden = !rows?.length;
    this.line.hidden = !line || !this.picture?.rows.length;
    if (rows) this.table.show(rows, waiting);
    fresh(this.line, line);
    fresh(this.remark, note);
    this.remark.hidden = !note;
    const count = kept?.[this.layer];
    if (count !== undefined && !isAsked(this.model)) this.drawing.place(count - 1);
  }

  destroy() {
    this.live.destroy();
    this.drawing.destroy();
  }

  /** @param {number} row */
  at(row) {
    const handle = /** @type {any} */ (this.picture?.rows[0][0].handle);
    return thresholdAt(handle, row, this.layer);
  }
}
