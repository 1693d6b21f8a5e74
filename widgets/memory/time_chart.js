/** Live bytes over a call, stacked by layers or by category; a moment to point at, and the limit. */

import { HoverCard, indexAfterKey, onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { readableBytes } from "../shared/format.js";
import { LimitHandle } from "../shared/limit_handle.js";
import { reachWithLimit } from "../shared/memory_limit.js";
import { segmentedControl } from "../shared/segments.js";
import { baseOf, eventAt, memoryFrame, stackingOf } from "./layout.js";
import {
  memoryAreas,
  memoryCross,
  memoryGrid,
  memoryKeys,
  memoryOfLayer,
  memoryPeak,
} from "./marks.js";
import { eventWords } from "./words.js";

/** @typedef {import("./layout.js").Timeline} Timeline */

const HEADINGS = { layer: "alive beyond the weights", category: "alive, with the weights" };

export class TimeChart {
  /**
   * @param {import("../shared/memory_limit.js").MemoryLimit} limit @param {() => number} beside the
   * bytes that count towards the limit and that no layer holds: the inputs
   * @param {() => void} onPin another moment is pinned, or what the bytes are stacked by is another
   */
  constructor(limit, beside, onPin) {
    this.limit = limit;
    this.beside = beside;
    this.onPin = onPin;
    /** @type {"layer" | "category"} */
    this.mode = "layer";
    this.selected = "";
    /** @type {Timeline | null} */
    this.data = null;
    /** @type {import("./layout.js").MemoryFrame | null} */
    this.frame = null;
    /** @type {number | null} */
    this.pinned = null;
    /** @type {number | null} */
    this.pointed = null;
    const choices = /** @type {[string, string][]} */ ([
      ["layer", "By layer"],
      ["category", "By category"],
    ]);
    this.choice = segmentedControl("what the bytes are stacked by", choices, (name) => {
      this.stackBy(/** @type {"layer" | "category"} */ (name));
      onPin();
    });
    this.heading = h("h3", {});
    this.drawing = s("svg", {
      class: "pf-svg",
      role: "slider",
      tabindex: "0",
      "aria-label": "moment of the call",
    });
    this.overlay = s("g", { class: "pf-overlay", "aria-hidden": "true" });
    this.handle = new LimitHandle(limit, "y", (bytes) => this.limitWords(bytes));
    this.track = h("div", { class: "pf-memory-track" }, this.handle.element);
    this.plot = h("div", { class: "pf-plot" }, this.drawing, this.track);
    this.card = new HoverCard(this.plot);
    this.legend = h("div", { class: "pf-legend", "aria-hidden": "true" });
    const head = h("div", { class: "pf-memory-head" }, this.heading, this.choice.element);
    this.element = h("div", { class: "pf-memory-time" }, head, this.plot, this.legend);
    this.listen();
    this.release = [
      onWidth(this.plot, (width) => this.draw(width)),
      limit.watch(() => this.onLimit()),
    ];
  }

  listen() {
    set(this.drawing, {
      onpointermove: (event) => this.point(this.eventUnder(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.point(null),
      onclick: (event) => this.pin(this.eventUnder(/** @type {PointerEvent} */ (event))),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      onblur: () => this.point(null),
    });
  }

  /** @param {Timeline | null} data */
  show(data) {
    this.data = data;
    this.pinned = this.pointed = null;
    this.stackBy(this.mode);
  }

  destroy() {
    for (const release of this.release) release();
  }

  /** @param {string} layer */
  select(layer) {
    this.selected = layer;
    this.mark();
  }

  /** The event that is pinned, or the peak. */
  moment() {
    return this.pinned ?? this.data?.peak ?? -1;
  }

  /** @param {"layer" | "category"} mode */
  stackBy(mode) {
    this.mode = mode;
    this.choice.show(mode);
    fresh(this.heading, HEADINGS[mode]);
    fresh(this.legend, ...(this.data ? memoryKeys(this.stacking(this.data)) : []));
    this.draw(this.plot.clientWidth);
  }

  /** @param {Timeline} data */
  stacking(data) {
    return stackingOf(data, this.mode);
  }

  /** The bytes of the limit that are not on the axis. @param {Timeline} data */
  offAxis(data) {
    const weights = data.weights.reduce((sum, bytes) => sum + bytes, 0);
    return this.beside() + weights - baseOf(this.stacking(data));
  }

  /** @param {number} width */
  draw(width) {
    if (!this.data || width <= 0) return;
    const stacking = this.stacking(this.data);
    const peak = (this.data.alive[this.data.peak] ?? 0) + baseOf(stacking);
    const limit = this.limit.bytes === null ? null : this.limit.bytes - this.offAxis(this.data);
    const frame = memoryFrame(width, this.data.duration, reachWithLimit(peak, limit));
    this.frame = frame;
    set(this.drawing, { width, height: frame.height, viewBox: `0 0 ${width} ${frame.height}` });
    const areas = memoryAreas(this.data, frame, stacking);
    const time = this.data.time[this.data.peak];
    const top = this.data.peak >= 0 && memoryPeak(frame, time, peak);
    fresh(this.drawing, memoryGrid(frame), areas, top, this.overlay);
    this.track.style.inset = `${frame.top}px ${width - frame.right}px auto ${frame.left}px`;
    this.track.style.height = `${frame.bottom - frame.top}px`;
    this.placeLimit();
    this.mark();
  }

  placeLimit() {
    if (!this.data || !this.frame) return;
    const off = this.offAxis(this.data);
    this.handle.place(off, off + this.frame.most);
  }

  onLimit() {
    if (this.handle.isMoving) this.placeLimit();
    else this.draw(this.plot.clientWidth);
  }

  /** @param {number} bytes */
  limitWords(bytes) {
    if (!this.data) return "";
    const peak = this.data.alive[this.data.peak] ?? 0;
    const over = peak + this.offAxis(this.data) + baseOf(this.stacking(this.data)) - bytes;
    return over > 0 ? `the call holds ${readableBytes(over)} more` : "the call stays under it";
  }

  mark() {
    if (!this.data || !this.frame) return;
    const event = this.pointed ?? this.pinned;
    const base = baseOf(this.stacking(this.data));
    const own = this.mode === "layer" && memoryOfLayer(this.data, this.frame, this.selected);
    const { time, alive } = this.data;
    fresh(
      this.overlay,
      own,
      event !== null && memoryCross(this.frame, time[event], alive[event] + base),
    );
    const shown = event ?? this.data.peak;
    if (shown < 0) return;
    const [heading, line, figures] = eventWords(this.data, shown);
    const named = figures.map(([bytes, name]) => `${name} ${bytes}`);
    set(this.drawing, {
      "aria-valuemin": 0,
      "aria-valuemax": time.length - 1,
      "aria-valuenow": shown,
      "aria-valuetext": [heading, line, ...named].join(", "),
    });
    const spot = { x: this.frame.x(time[shown]), y: this.frame.y(alive[shown] + base) };
    if (event !== null) this.card.show(spot, heading, line, figures);
    else this.card.hide();
  }

  /** @param {number | null} event */
  point(event) {
    if (event === this.pointed) return;
    this.pointed = event;
    this.mark();
  }

  /** @param {number | null} event */
  pin(event) {
    this.pinned = event === this.data?.peak ? null : event;
    this.pointed = null;
    this.mark();
    this.onPin();
  }

  /** A slider's keys: up and right lead to later events. @param {KeyboardEvent} event */
  key(event) {
    const at = this.moment();
    /** @type {Record<string, string>} */
    const turned = { ArrowUp: "ArrowRight", ArrowDown: "ArrowLeft" };
    const next = indexAfterKey(turned[event.key] ?? event.key, at, this.data?.time.length ?? 0);
    if (event.key === "Escape") this.pin(null);
    else if (next !== at && next >= 0) this.pin(next);
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
}
