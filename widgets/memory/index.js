/**
 * The memory view: live bytes over a call, stacked by layers, and a treemap of what is alive at one
 * moment, by default the peak.
 */

import { HoverCard, freshId, indexAfterKey, onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { readableBytes, threeFigures } from "../shared/format.js";
import { Question } from "../shared/question.js";
import { eventAt, heldAt, memoryFrame, unpackedTimeline } from "./layout.js";
import { memoryMap } from "./map.js";
import {
  mapCell,
  memoryAreas,
  memoryCross,
  memoryGrid,
  memoryKeys,
  memoryOfLayer,
  memoryPeak,
} from "./marks.js";
import { cellFigures, cellName, cellWords, eventWords } from "./words.js";

/** @typedef {import("./layout.js").Timeline} Timeline */
/** @typedef {import("./map.js").MapCell} MapCell */

const MAP_HEIGHT = 300;
const FOLLOWED = ["state", "requests", "served"];
const QUESTION = {
  query: "memory",
  request: "memory",
  question: "What is in memory during a call, and which layers hold it at the peak?",
  use: "Shows the current model's memory over time, and its peak as a map of layers.",
};

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
    this.host = host;
    this.model = model;
    this.question = new Question(model, host.ask, QUESTION);
    this.id = freshId("memory");
    this.selected = host.selected();
    /** @type {Timeline | null} */
    this.data = null;
    /** @type {import("./layout.js").MemoryFrame | null} */
    this.frame = null;
    /** @type {MapCell[]} */
    this.cells = [];
    /** @type {SVGElement[]} */
    this.boxes = [];
    /** @type {number | null} */
    this.pinned = null;
    /** @type {number | null} */
    this.pointed = null;
    /** @type {MapCell | null} */
    this.pointedCell = null;
    this.head = h("div", { class: "pf-view-head" });
    this.sentence = h("p", { class: "pf-reason" });
    this.drawing = s("svg", {
      class: "pf-svg",
      role: "slider",
      tabindex: "0",
      "aria-label": "moment of the call",
    });
    this.overlay = s("g", { class: "pf-overlay", "aria-hidden": "true" });
    this.plot = h("div", { class: "pf-plot" }, this.drawing);
    this.card = new HoverCard(this.plot);
    this.mapHead = h("h3", {});
    this.map = s("svg", { class: "pf-svg", role: "listbox", tabindex: "0" });
    this.mapPlot = h("div", { class: "pf-plot" }, this.map);
    this.mapCard = new HoverCard(this.mapPlot);
    this.legend = h("div", { class: "pf-legend", "aria-hidden": "true" });
    this.note = h("p", { class: "pf-note" });
    const heading = h("h3", {}, "alive beyond the weights");
    const time = h("div", { class: "pf-memory-time" }, heading, this.plot, this.legend);
    this.parts = h(
      "div",
      { class: "pf-memory-parts" },
      time,
      h("div", { class: "pf-memory-map" }, this.mapHead, this.mapPlot),
    );
    const all = [this.head, this.sentence, this.parts, this.note, this.question.element];
    root.append(h("section", { class: "pf-view pf-memory-view", "aria-label": "memory" }, ...all));
    this.listen();
    this.release = [
      onWidth(this.plot, (width) => this.drawTime(width)),
      onWidth(this.mapPlot, (width) => this.drawMap(width)),
    ];
  }

  listen() {
    this.onChange = () => this.question.show(Boolean(this.data));
    for (const name of FOLLOWED) this.model.on(`change:${name}`, this.onChange);
    set(this.drawing, {
      onpointermove: (event) => this.point(this.eventUnder(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.point(null),
      onclick: (event) => this.pin(this.eventUnder(/** @type {PointerEvent} */ (event))),
      onkeydown: (event) => this.timeKey(/** @type {KeyboardEvent} */ (event)),
      onblur: () => this.point(null),
    });
    set(this.map, {
      onpointermove: (event) => this.pointCell(this.cellUnder(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.pointCell(null),
      onclick: (event) => this.choose(this.cellUnder(/** @type {PointerEvent} */ (event))),
      onkeydown: (event) => this.mapKey(/** @type {KeyboardEvent} */ (event)),
      onblur: () => this.pointCell(null),
    });
  }

  /** @param {any} data */
  show(data) {
    this.data = unpackedTimeline(data);
    this.pinned = this.pointed = null;
    this.head.hidden = this.parts.hidden = this.note.hidden = !this.data;
    this.question.show(Boolean(this.data));
    fresh(this.head, h("h2", {}, this.data?.title ?? ""));
    fresh(this.sentence, this.data?.sentence ?? "");
    fresh(this.note, this.data?.note ?? "");
    fresh(this.legend, ...memoryKeys(this.data?.groups ?? []));
    this.drawTime(this.plot.clientWidth);
    this.drawMap(this.mapPlot.clientWidth);
  }

  /** @param {string} layer */
  select(layer) {
    this.selected = layer;
    this.markTime();
    this.markMap();
  }

  destroy() {
    for (const name of FOLLOWED) this.model.off(`change:${name}`, this.onChange);
    for (const release of this.release) release();
  }

  /** The event whose moment the map shows. */
  moment() {
    return this.pinned ?? this.data?.peak ?? -1;
  }

  /** @param {number} width */
  drawTime(width) {
    if (!this.data || width <= 0) return;
    this.frame = memoryFrame(width, this.data);
    set(this.drawing, {
      width,
      height: this.frame.height,
      viewBox: `0 0 ${width} ${this.frame.height}`,
    });
    fresh(
      this.drawing,
      memoryGrid(this.frame),
      memoryAreas(this.data, this.frame),
      memoryPeak(this.data, this.frame),
      this.overlay,
    );
    this.markTime();
  }

  /** @param {number} width */
  drawMap(width) {
    if (!this.data || width <= 0) return;
    const moment = this.moment();
    const parts = memoryMap(heldAt(this.data, moment), width, MAP_HEIGHT);
    this.cells = parts.flatMap((part) => part.cells);
    this.boxes = this.cells.map((cell, index) => {
      const words = cellWords(this.data, this.cells, cell);
      return mapCell(cell, `${this.id}-${index}`, cellName(this.data, cell), words);
    });
    const names = parts.map(({ kind, bytes, y }) =>
      s(
        "text",
        { x: 0, y: y + 13, class: "pf-map-part", "aria-hidden": "true" },
        `${kind} ${readableBytes(bytes)}`,
      ),
    );
    const when =
      moment === this.data.peak
        ? "at the peak"
        : `after ${threeFigures(this.data.time[moment])} ms`;
    fresh(this.mapHead, `alive ${when}`);
    set(this.map, {
      width,
      height: MAP_HEIGHT,
      viewBox: `0 0 ${width} ${MAP_HEIGHT}`,
      "aria-label": `what is alive ${when}`,
    });
    fresh(this.map, ...names, ...this.boxes);
    this.pointedCell = null;
    this.markMap();
  }

  markTime() {
    if (!this.data || !this.frame) return;
    const event = this.pointed ?? this.pinned;
    fresh(
      this.overlay,
      memoryOfLayer(this.data, this.frame, this.selected),
      event !== null && memoryCross(this.data, this.frame, event),
    );
    const shown = event ?? this.data.peak;
    if (shown < 0) return;
    const [heading, line, figures] = eventWords(this.data, shown);
    set(this.drawing, {
      "aria-valuemin": 0,
      "aria-valuemax": this.data.time.length - 1,
      "aria-valuenow": shown,
      "aria-valuetext": [heading, line, ...figures.map(([bytes, name]) => `${name} ${bytes}`)].join(
        ", ",
      ),
    });
    const spot = {
      x: this.frame.x(this.data.time[shown]),
      y: this.frame.y(this.data.alive[shown]),
    };
    if (event !== null) this.card.show(spot, heading, line, figures);
    else this.card.hide();
  }

  markMap() {
    const isChosen = (/** @type {MapCell} */ { held }) =>
      Boolean(this.selected) &&
      (held.layer === this.selected || held.layer.startsWith(`${this.selected}.`));
    this.boxes.forEach((box, index) =>
      box.setAttribute("aria-selected", String(isChosen(this.cells[index]))),
    );
    const at = this.pointedCell ? this.cells.indexOf(this.pointedCell) : -1;
    set(this.map, { "aria-activedescendant": at >= 0 && `${this.id}-${at}` });
    this.boxes.forEach((box, index) => box.classList.toggle("pf-pointed-cell", index === at));
    if (!this.pointedCell) return this.mapCard.hide();
    const { held, box } = this.pointedCell;
    const spot = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
    this.mapCard.show(
      spot,
      cellName(this.data, this.pointedCell),
      held.kind,
      cellFigures(this.cells, this.pointedCell),
    );
  }

  /** @param {number | null} event */
  point(event) {
    if (event === this.pointed) return;
    this.pointed = event;
    this.markTime();
  }

  /** @param {number | null} event */
  pin(event) {
    this.pinned = event === this.data?.peak ? null : event;
    this.pointed = null;
    this.markTime();
    this.drawMap(this.mapPlot.clientWidth);
  }

  /** @param {MapCell | null} cell */
  pointCell(cell) {
    if (cell === this.pointedCell) return;
    this.pointedCell = cell;
    this.markMap();
  }

  /** @param {MapCell | null} cell */
  choose(cell) {
    if (!cell) return;
    this.select(cell.held.layer);
    this.host.select(cell.held.layer);
  }

  /** A slider's keys: up and right lead to later events. @param {KeyboardEvent} event */
  timeKey(event) {
    const at = this.pinned ?? this.data?.peak ?? -1;
    /** @type {Record<string, string>} */
    const turned = { ArrowUp: "ArrowRight", ArrowDown: "ArrowLeft" };
    const next = indexAfterKey(turned[event.key] ?? event.key, at, this.data?.time.length ?? 0);
    if (event.key === "Escape") this.pin(null);
    else if (next !== at && next >= 0) this.pin(next);
    else return;
    event.preventDefault();
  }

  /** @param {KeyboardEvent} event */
  mapKey(event) {
    const at = this.pointedCell ? this.cells.indexOf(this.pointedCell) : -1;
    const next = indexAfterKey(event.key, at, this.cells.length);
    if (event.key === "Escape") this.pointCell(null);
    else if (event.key === "Enter" || event.key === " ") this.choose(this.pointedCell);
    else if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End")
      this.pointCell(this.cells[next] ?? null);
    else return;
    event.preventDefault();
  }

  /** @param {PointerEvent} event @returns {number | null} */
  eventUnder(event) {
    if (!this.frame || !this.data?.time.length) return null;
    const { left, right } = this.frame;
    const across = event.clientX - this.drawing.getBoundingClientRect().left;
    const moment = ((across - left) / (right - left)) * this.data.duration;
    const index = eventAt(this.data.time, moment);
    return across < left - 4 || across > right + 4 ? null : Math.max(0, index);
  }

  /** @param {PointerEvent} event @returns {MapCell | null} */
  cellUnder(event) {
    const bounds = this.map.getBoundingClientRect();
    const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
    const isIn = (/** @type {MapCell} */ { box }) =>
      x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height;
    return this.cells.find(isIn) ?? null;
  }
}
