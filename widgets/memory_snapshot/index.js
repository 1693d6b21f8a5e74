/**
 * The view of a memory snapshot: by category over time with what is reserved, the segments at a
 * moment with each block's call site, and tables of who held what and what would have helped.
 */

import { indexAfterKey, HoverCard, onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { readableBytes, threeFigures } from "../shared/format.js";
import { plainTable } from "../shared/plain_table.js";
import { eventAt, memoryFrame, stepPath } from "../memory/layout.js";
import { memoryCross, memoryGrid, memoryKeys, memoryPeak, stackedAreas } from "../memory/marks.js";
import { drawnMoments, momentWords, peakMoment, stacksAt, unpackedSnapshot } from "./layout.js";
import { SegmentChart } from "./segment_chart.js";

/** @typedef {import("./layout.js").Snapshot} Snapshot */

const WORDS = ["layer", "call site", "category", "what", "outcome", "settings"];

/** @param {HTMLElement} root @returns {import("../shared/host.js").View} */
export function memorySnapshot(root) {
  return new SnapshotView(root);
}

class SnapshotView {
  /** @param {HTMLElement} root */
  constructor(root) {
    /** @type {Snapshot | null} */
    this.data = null;
    /** @type {import("../memory/layout.js").MemoryFrame | null} */
    this.frame = null;
    /** @type {number | null} */
    this.pinned = null;
    /** @type {number | null} */
    this.pointed = null;
    this.head = h("div", { class: "pf-view-head" });
    this.sentence = h("p", { class: "pf-reason" });
    this.drawing = s("svg", {
      class: "pf-svg",
      role: "slider",
      tabindex: "0",
      "aria-label": "moment of the snapshot",
    });
    this.overlay = s("g", { class: "pf-overlay", "aria-hidden": "true" });
    this.plot = h("div", { class: "pf-plot pf-memory-time" }, this.drawing);
    this.card = new HoverCard(this.plot);
    this.legend = h("div", { class: "pf-legend", "aria-hidden": "true" });
    this.segments = new SegmentChart();
    this.tables = h("div", {});
    const all = [this.head, this.sentence, this.plot, this.legend];
    const view = { class: "pf-view pf-snapshot-view", "aria-label": "memory snapshot" };
    root.append(h("section", view, ...all, this.segments.element, this.tables));
    set(this.drawing, {
      onpointermove: (event) => this.point(this.under(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.point(null),
      onclick: (event) => this.pin(this.under(/** @type {PointerEvent} */ (event))),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      onblur: () => this.point(null),
    });
    this.release = onWidth(this.plot, (width) => this.draw(width));
  }

  /** @param {any} data */
  show(data) {
    this.data = unpackedSnapshot(data);
    this.pinned = this.pointed = null;
    fresh(this.head, h("h2", {}, this.data?.title ?? ""));
    fresh(this.sentence, this.data?.sentence ?? "There is no snapshot to show.");
    const names = this.data?.categories ?? [];
    fresh(this.legend, ...memoryKeys(/** @type {any} */ ({ names, classes: classesOf(names) })));
    const tables = this.data?.tables ?? [];
    fresh(this.tables, ...tables.map(({ caption, rows }) => plainTable(caption, rows, WORDS)));
    this.segments.show(this.data?.maps ?? []);
    this.draw(this.plot.clientWidth);
  }

  destroy() {
    this.release();
    this.segments.destroy();
  }

  /** @param {number} width */
  draw(width) {
    const { data } = this;
    this.plot.hidden = this.legend.hidden = !data?.time.length;
    if (!data || !data.time.length || width <= 0) return;
    const end = data.time.at(-1) ?? 0;
    const most = 1.12 * data.reserved.reduce((top, bytes) => Math.max(top, bytes), data.peakBytes);
    const frame = memoryFrame(width, end, Math.max(most, 1));
    this.frame = frame;
    const at = drawnMoments(data, frame.right - frame.left);
    const times = at.map((index) => data.time[index]);
    const whole = at.map((index) => data.whole[index]);
    const classes = classesOf(data.categories);
    const areas = stackedAreas(times, stacksAt(data, at), whole, end, frame, classes);
    const reserved = at.map((index) => data.reserved[index]);
    const line = data.reserved.length > 0 && stepPath(times, reserved, end, frame);
    set(this.drawing, { width, height: frame.height, viewBox: `0 0 ${width} ${frame.height}` });
    fresh(
      this.drawing,
      memoryGrid(frame, data.unit === "ms" ? "ms after the first event" : "events"),
      areas,
      line && s("path", { d: line, class: "pf-snapshot-reserved", "aria-hidden": "true" }),
      memoryPeak(
        frame,
        data.peakTime,
        data.peakBytes,
        `${threeFigures(data.peakTime)} ${data.unit}`,
      ),
      refusal(data, frame),
      this.overlay,
    );
    this.mark();
  }

  mark() {
    if (!this.data || !this.frame) return;
    const at = this.pointed ?? this.pinned;
    const { time, whole } = this.data;
    fresh(this.overlay, at !== null && memoryCross(this.frame, time[at], whole[at]));
    const shown = at ?? peakMoment(this.data);
    const [heading, line, figures] = momentWords(this.data, shown);
    const named = figures.map(([bytes, name]) => `${name} ${bytes}`);
    set(this.drawing, {
      "aria-valuemin": 0,
      "aria-valuemax": time.length - 1,
      "aria-valuenow": shown,
      "aria-valuetext": [heading, line, ...named].filter(Boolean).join(", "),
    });
    const spot = { x: this.frame.x(time[shown]), y: this.frame.y(whole[shown]) };
    if (at !== null) this.card.show(spot, heading, line, figures);
    else this.card.hide();
  }

  /** @param {number | null} at */
  point(at) {
    if (at === this.pointed) return;
    this.pointed = at;
    this.mark();
  }

  /** @param {number | null} at */
  pin(at) {
    this.pinned = at;
    this.pointed = null;
    this.mark();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.data) return;
    const at = this.pinned ?? peakMoment(this.data);
    /** @type {Record<string, string>} */
    const turned = { ArrowUp: "ArrowRight", ArrowDown: "ArrowLeft" };
    const next = indexAfterKey(turned[event.key] ?? event.key, at, this.data.time.length);
    if (event.key === "Escape") this.pin(null);
    else if (next !== at && next >= 0) this.pin(next);
    else return;
    event.preventDefault();
  }

  /** @param {PointerEvent} event @returns {number | null} */
  under(event) {
    if (!this.frame || !this.data?.time.length) return null;
    const { left, right } = this.frame;
    const across = event.clientX - this.drawing.getBoundingClientRect().left;
    if (across < left - 4 || across > right + 4) return null;
    const moment = ((across - left) / (right - left)) * (this.data.time.at(-1) ?? 0);
    return Math.max(0, eventAt(this.data.time, moment));
  }
}

/** @param {string[]} categories */
function classesOf(categories) {
  return categories.map((name) => `pf-category-${name.replaceAll(" ", "-")}`);
}

/** Where memory ran out. @param {Snapshot} data @param {import("../memory/layout.js").MemoryFrame} frame */
function refusal({ refusedTime, refusedBytes }, frame) {
  if (refusedTime === null) return null;
  const x = frame.x(refusedTime);
  const isLate = x > (frame.left + frame.right) / 2;
  const text = `${readableBytes(refusedBytes)} refused`;
  const words = { x: x + (isLate ? -5 : 5), y: frame.top + 10 };
  return s(
    "g",
    { "aria-hidden": "true" },
    s("line", { x1: x, x2: x, y1: frame.top, y2: frame.bottom, class: "pf-snapshot-refused" }),
    s("text", { ...words, class: `pf-snapshot-words${isLate ? " pf-end" : ""}` }, text),
  );
}
