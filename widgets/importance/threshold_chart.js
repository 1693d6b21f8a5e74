/**
 * The channels of one layer as bars, the most important first, and a threshold that is dragged, or
 * moved by keys.
 */

import { freshId, onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import {
  bandPath,
  barsPath,
  channelFrame,
  channelTicks,
  heightAt,
  keptText,
  leftOf,
  thresholdText,
  valueAt,
  whiskerPath,
} from "./layout.js";
import { canLose, countAbove, keptAbove, thresholdKeeping } from "./table.js";
import { afterRest } from "../shared/pause.js";

/** @typedef {import("./table.js").ImportanceTable} ImportanceTable */

const TOUCH_REACH = 22; // how near a finger has to come to the line; elsewhere it scrolls the page

export class ThresholdChart {
  /**
   * @param {{ onLive: (threshold: number, kept: number) => void, onSettle: (threshold: number,
   * kept: number) => void }} handlers
   *   `onLive`: on the way, once a picture; `onSettle`: the gesture has ended there
   * @param {number} height
   */
  constructor(handlers, height) {
    this.handlers = handlers;
    this.height = height;
    this.table = /** @type {ImportanceTable | null} */ (null);
    this.row = -1;
    this.threshold = 0;
    /**
     * The start of a gesture; null between gestures.
     * @type {{ threshold: number, pointer: number | null } | null}
     */
    this.gesture = null;
    this.frame = channelFrame(300, height, {
      value: new Float32Array(),
      error: new Float32Array(),
    });
    this.waiting = 0;
    this.status = h("p", { class: "pf-channels-said" });
    this.further = h("p", { class: "pf-channels-said", id: freshId("further"), hidden: true });
    this.drawing = s("svg", {
      "aria-describedby": this.further.id,
      class: "pf-svg pf-channels-svg",
      role: "slider",
      tabindex: "0",
      "aria-orientation": "vertical",
    });
    this.plot = h("div", { class: "pf-plot" }, this.drawing);
    this.note = h("p", { class: "pf-note" });
    this.element = h(
      "div",
      { class: "pf-channels" },
      this.status,
      this.further,
      this.plot,
      this.note,
    );
    this.axes = s("g", { class: "pf-overlay" });
    this.keptBars = s("path", { class: "pf-channel-kept" });
    this.goneBars = s("path", { class: "pf-channel-gone" });
    this.keptBox = s("svg", { height }, this.keptBars); // each shows its part of the same bars
    this.goneBox = s("svg", { height }, this.goneBars);
    this.band = s("path", { class: "pf-channel-band" });
    this.whiskers = s("path", { class: "pf-channel-whiskers" });
    this.cut = s("line", { class: "pf-threshold-cut" });
    this.line = s("line", { class: "pf-threshold-line" });
    this.grab = s("line", { class: "pf-threshold-grab" });
    this.grip = s(
      "g",
      { class: "pf-threshold-grip" },
      s("rect", { x: -15, y: -7, width: 30, height: 14, rx: 7 }),
      s("path", { d: "M-5 -2H5M-5 2H5" }),
    );
    this.handle = s("g", { class: "pf-threshold" }, this.cut, this.line, this.grab, this.grip);
    fresh(
      this.drawing,
      this.axes,
      this.goneBox,
      this.keptBox,
      this.band,
      this.whiskers,
      this.handle,
    );
    this.listen();
    this.rest = afterRest(() => this.settle());
    this.release = onWidth(this.plot, (width) => this.draw(width));
  }

  /** @param {ImportanceTable} table @param {number} row @param {number} threshold */
  show(table, row, threshold) {
    if (this.gesture && table === this.table && row === this.row) return; // keep a drag
    const isOther = table !== this.table || row !== this.row;
    this.gesture = null;
    this.table = table;
    this.row = row;
    this.threshold = threshold;
    const has = row >= 0 && table.sorted[row]?.value.length > 0;
    this.plot.hidden = this.status.hidden = !has;
    this.further.hidden = !has || !this.further.textContent;
    fresh(this.note, row >= 0 && table.note[row]);
    this.note.hidden = !this.note.textContent;
    if (isOther) this.draw(this.plot.clientWidth);
    else this.place();
  }

  /** Show a further text about the threshold. @param {string} text */
  tell(text) {
    if (this.further.textContent !== text) fresh(this.further, text);
    this.further.hidden = !text || this.plot.hidden;
  }

  destroy() {
    this.release();
    cancelAnimationFrame(this.waiting);
    this.rest.drop();
  }

  get sorted() {
    return (
      this.table?.sorted[this.row] ?? {
        value: new Float32Array(),
        error: new Float32Array(),
        channel: new Uint32Array(),
      }
    );
  }

  get canMove() {
    return this.table !== null && canLose(this.table, this.row);
  }

  // Private to the chart.

  listen() {
    set(this.drawing, {
      onpointerdown: (event) => this.seize(/** @type {PointerEvent} */ (event)),
      onpointermove: (event) => this.follow(/** @type {PointerEvent} */ (event)),
      onpointerup: () => this.settle(),
      onpointercancel: () => this.settle(),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      onkeyup: () => this.gesture?.pointer === null && this.rest.wait(),
      // A choice by keys waits on: settling draws anew, and would take the click that ends the focus.
      onblur: () => (this.gesture?.pointer === null ? this.rest.wait() : this.settle()),
    });
  }

  /** @param {number} width */
  draw(width) {
    if (!this.table || this.row < 0 || width <= 0) return;
    const { sorted } = this;
    this.frame = channelFrame(width, this.height, sorted);
    const { left, right, count } = this.frame;
    set(this.drawing, { width, height: this.height, viewBox: `0 0 ${width} ${this.height}` });
    const bars = barsPath(this.frame, sorted.value);
    for (const path of [this.keptBars, this.goneBars]) set(path, { d: bars });
    set(this.band, { d: bandPath(this.frame, sorted) });
    set(this.whiskers, { d: whiskerPath(this.frame, sorted) });
    for (const line of [this.line, this.grab]) set(line, { x1: left, x2: right });
    const below = this.height - 5;
    fresh(
      this.axes,
      ...this.gridlines(),
      s("text", { class: "pf-tick", x: left, y: below }, "matters most"),
      s(
        "text",
        { class: "pf-tick pf-end", x: right, y: below },
        count > 1 ? `${count.toLocaleString("en-US")} channels, sorted` : "1 channel",
      ),
    );
    this.place();
  }

  gridlines() {
    return channelTicks(this.frame).flatMap((value) => {
      const y = heightAt(this.frame, value);
      const look = value === 1 ? "pf-gridline pf-mean-line" : "pf-gridline";
      return [
        s("line", { class: look, x1: this.frame.left, x2: this.frame.right, y1: y, y2: y }),
        s("text", { class: "pf-tick pf-end", x: this.frame.left - 6, y: y + 4 }, `${value}×`),
      ];
    });
  }

  /** Move the line; only a few attributes change, to keep up with the pointer. */
  place() {
    cancelAnimationFrame(this.waiting);
    this.waiting = 0;
    if (!this.table || this.row < 0) return;
    const { frame, sorted, kept } = this;
    const all = sorted.value.length;
    const [x, y] = [leftOf(frame, kept), heightAt(frame, Math.min(this.threshold, frame.most))];
    this.clip(this.keptBox, frame.left, x);
    this.clip(this.goneBox, x, frame.right + 1);
    set(this.cut, { x1: x, x2: x, y1: y, y2: frame.bottom });
    for (const line of [this.line, this.grab]) set(line, { y1: y, y2: y });
    this.grip.setAttribute(
      "transform",
      `translate(${frame.right - 22} ${Math.min(y, frame.bottom - 9)})`,
    );
    this.handle.classList.toggle("pf-still", !this.canMove);
    fresh(
      this.status,
      h("b", {}, keptText(kept, all)),
      this.canMove &&
        this.threshold > 0 &&
        h("span", {}, ` at ${thresholdText(this.threshold)} × the mean`),
    );
    set(this.drawing, {
      "aria-label": `threshold of ${this.table.layers[this.row]}`,
      "aria-valuemin": 0,
      "aria-valuemax": thresholdText(frame.most),
      "aria-valuenow": thresholdText(this.threshold),
      "aria-valuetext": keptText(kept, all),
      "aria-disabled": String(!this.canMove),
    });
    this.drawing.classList.toggle("pf-is-dragging", this.gesture !== null);
  }

  /** @param {SVGElement} box @param {number} from @param {number} to */
  clip(box, from, to) {
    const width = Math.max(0, to - from);
    set(box, { x: from, width, viewBox: `${from} 0 ${Math.max(width, 1)} ${this.height}` });
  }

  get kept() {
    return this.table ? keptAbove(this.table, this.row, this.threshold) : 0;
  }

  /** @param {PointerEvent} event */
  seize(event) {
    if (!this.canMove || event.button !== 0 || this.gesture?.pointer) return;
    const y = this.heightOf(event);
    if (
      event.pointerType === "touch" &&
      Math.abs(y - heightAt(this.frame, this.threshold)) > TOUCH_REACH
    )
      return;
    event.preventDefault();
    this.drawing.focus({ preventScroll: true });
    this.drawing.setPointerCapture(event.pointerId);
    this.rest.drop();
    this.gesture = { threshold: this.threshold, pointer: event.pointerId };
    this.move(valueAt(this.frame, y));
  }

  /** @param {PointerEvent} event */
  follow(event) {
    if (this.gesture?.pointer === event.pointerId)
      this.move(valueAt(this.frame, this.heightOf(event)));
  }

  /** Draw at the next picture, however many moves come before it. @param {number} threshold */
  move(threshold) {
    this.threshold = threshold;
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.place();
      if (this.gesture) this.handlers.onLive(this.threshold, this.kept);
    });
  }

  settle() {
    this.rest.drop();
    if (!this.gesture) return;
    this.gesture = null;
    this.place();
    this.handlers.onSettle(this.threshold, this.kept);
  }

  /**
   * Up is a higher threshold, by a channel; a page is a tenth of them.
   * @param {KeyboardEvent} event
   */
  key(event) {
    const kept = this.canMove ? this.keptAfter(event.key) : null;
    if (kept === null || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Escape") return void this.giveUp();
    this.rest.drop();
    this.gesture ??= { threshold: this.threshold, pointer: null };
    this.move(thresholdKeeping(this.sorted.value, kept));
  }

  /** How many are kept after a key; null for a key that means nothing here. @param {string} key */
  keptAfter(key) {
    const { value } = this.sorted;
    const [now, all] = [Math.max(1, countAbove(value, this.threshold)), value.length];
    const page = Math.max(1, Math.round(all / 10));
    /** @type {Record<string, number>} */
    const step = {
      ArrowUp: -1,
      ArrowRight: -1,
      ArrowDown: 1,
      ArrowLeft: 1,
      PageUp: -page,
      PageDown: page,
      Home: all,
      End: -all,
    };
    if (key === "Escape") return this.gesture ? now : null;
    return key in step ? Math.min(all, Math.max(1, now + step[key])) : null;
  }

  /** Return to the start of the gesture. */
  giveUp() {
    this.threshold = this.gesture?.threshold ?? this.threshold;
    this.settle();
  }

  /** @param {PointerEvent} event */
  heightOf(event) {
    return event.clientY - this.drawing.getBoundingClientRect().top;
  }
}
