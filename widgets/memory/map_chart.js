/** What is alive at one moment, as a map of layers; a list for a screen reader. */

import { HoverCard, freshId, indexAfterKey, onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { readableBytes, threeFigures } from "../shared/format.js";
import { heldAt } from "./layout.js";
import { memoryMap } from "./map.js";
import { mapCell } from "./marks.js";
import { cellFigures, cellName, cellWords } from "./words.js";

/** @typedef {import("./layout.js").Timeline} Timeline */
/** @typedef {import("./map.js").MapCell} MapCell */

const MAP_HEIGHT = 300;

export class MapChart {
  /** @param {(layer: string) => void} onChoose */
  constructor(onChoose) {
    this.onChoose = onChoose;
    this.id = freshId("memory");
    this.selected = "";
    /** @type {Timeline | null} */
    this.data = null;
    this.event = -1;
    /** @type {"layer" | "category"} */
    this.mode = "layer";
    /** @type {MapCell[]} */
    this.cells = [];
    /** @type {SVGElement[]} */
    this.boxes = [];
    /** @type {MapCell | null} */
    this.pointed = null;
    this.heading = h("h3", {});
    this.map = s("svg", { class: "pf-svg", role: "listbox", tabindex: "0" });
    this.plot = h("div", { class: "pf-plot" }, this.map);
    this.card = new HoverCard(this.plot);
    this.element = h("div", { class: "pf-memory-map" }, this.heading, this.plot);
    set(this.map, {
      onpointermove: (event) => this.point(this.cellUnder(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.point(null),
      onclick: (event) => this.choose(this.cellUnder(/** @type {PointerEvent} */ (event))),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      onblur: () => this.point(null),
    });
    this.destroy = onWidth(this.plot, (width) => this.draw(width));
  }

  /**
   * @param {Timeline | null} data @param {number} event
   * @param {"layer" | "category"} mode what a colour stands for
   */
  show(data, event, mode) {
    [this.data, this.event, this.mode] = [data, event, mode];
    this.draw(this.plot.clientWidth);
  }

  /** @param {string} layer */
  select(layer) {
    this.selected = layer;
    this.mark();
  }

  /** @param {number} width */
  draw(width) {
    if (!this.data || width <= 0) return;
    const parts = memoryMap(heldAt(this.data, this.event), width, MAP_HEIGHT);
    this.cells = parts.flatMap((part) => part.cells);
    this.boxes = this.cells.map((cell, index) => {
      const words = cellWords(this.data, this.cells, cell);
      const { kind, group } = cell.held;
      const tone = this.mode === "layer" ? `pf-group-${group}` : `pf-category-${kind}`;
      return mapCell(cell, `${this.id}-${index}`, cellName(this.data, cell), words, tone);
    });
    const names = parts.map(({ kind, bytes, y }) =>
      s(
        "text",
        { x: 0, y: y + 13, class: "pf-map-part", "aria-hidden": "true" },
        `${kind} ${readableBytes(bytes)}`,
      ),
    );
    const isPeak = this.event === this.data.peak;
    const when = isPeak ? "at the peak" : `after ${threeFigures(this.data.time[this.event])} ms`;
    fresh(this.heading, `alive ${when}`);
    set(this.map, {
      width,
      height: MAP_HEIGHT,
      viewBox: `0 0 ${width} ${MAP_HEIGHT}`,
      "aria-label": `what is alive ${when}`,
    });
    fresh(this.map, ...names, ...this.boxes);
    this.pointed = null;
    this.mark();
  }

  mark() {
    const isChosen = (/** @type {MapCell} */ { held }) =>
      Boolean(this.selected) &&
      (held.layer === this.selected || held.layer.startsWith(`${this.selected}.`));
    this.boxes.forEach((box, index) =>
      box.setAttribute("aria-selected", String(isChosen(this.cells[index]))),
    );
    const at = this.pointed ? this.cells.indexOf(this.pointed) : -1;
    set(this.map, { "aria-activedescendant": at >= 0 && `${this.id}-${at}` });
    this.boxes.forEach((box, index) => box.classList.toggle("pf-pointed-cell", index === at));
    if (!this.pointed) return this.card.hide();
    const { held, box } = this.pointed;
    const spot = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
    const figures = cellFigures(this.cells, this.pointed);
    this.card.show(spot, cellName(this.data, this.pointed), held.kind, figures);
  }

  /** @param {MapCell | null} cell */
  point(cell) {
    if (cell === this.pointed) return;
    this.pointed = cell;
    this.mark();
  }

  /** @param {MapCell | null} cell */
  choose(cell) {
    if (cell) this.onChoose(cell.held.layer);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const at = this.pointed ? this.cells.indexOf(this.pointed) : -1;
    const next = indexAfterKey(event.key, at, this.cells.length);
    if (event.key === "Escape") this.point(null);
    else if (event.key === "Enter" || event.key === " ") this.choose(this.pointed);
    else if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End")
      this.point(this.cells[next] ?? null);
    else return;
    event.preventDefault();
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
