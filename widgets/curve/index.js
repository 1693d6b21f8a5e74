/** The view of a batch sweep: throughput, latency and memory, with the knee marked. */

import { indexAfterKey, onWidth } from "../shared/chart.js";
import { bestBatch, curvePanels, nearestBatch, readableRate, rowsThatRan } from "./layout.js";
import { curveCross, curvePanel, kneeMarks, limitMarks, plateauMarks } from "./marks.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { readableBytes, readablePercent, threeFigures } from "../shared/format.js";

/** @typedef {import("./layout.js").Sweep} Sweep */
/** @typedef {import("./layout.js").BatchRow} BatchRow */

/** @param {HTMLElement} root @returns {import("../shared/host.js").View} */
export function curve(root) {
  return new CurveView(root);
}

class CurveView {
  /** @param {HTMLElement} root */
  constructor(root) {
    /** @type {Sweep | null} */
    this.data = null;
    /** @type {import("./layout.js").CurvePanel[]} */
    this.panels = [];
    /** @type {number | null} */
    this.pinned = null;
    /** @type {number | null} */
    this.pointed = null;
    this.head = h("div", { class: "pf-view-head" });
    this.reason = h("p", { class: "pf-reason" });
    this.figures = h("p", { class: "pf-readout", "aria-hidden": "true" });
    this.drawing = s("svg", {
      class: "pf-svg",
      role: "slider",
      tabindex: "0",
      "aria-label": "batch size",
    });
    this.cross = s("g", { class: "pf-overlay" });
    this.plot = h("div", { class: "pf-plot" }, this.drawing);
    this.failures = h("ul", { class: "pf-failures" });
    const parts = [this.head, this.reason, this.figures, this.plot, this.failures];
    root.append(h("section", { class: "pf-view pf-curve", "aria-label": "batch sizes" }, ...parts));
    this.listen();
    this.release = onWidth(this.plot, (width) => this.draw(width));
  }

  listen() {
    set(this.drawing, {
      onpointermove: (event) => this.point(this.batchUnder(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.point(null),
      onclick: (event) => this.pin(this.batchUnder(/** @type {PointerEvent} */ (event))),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
    });
  }

  /** @param {Sweep} data */
  show(data) {
    const rows = data?.rows ?? [];
    this.data = rowsThatRan(rows).length ? data : null;
    fresh(this.head, h("h2", {}, data?.title ?? ""));
    fresh(this.reason, data?.reason ?? (this.data ? "" : "No batch size has been measured yet."));
    const failed = rows.filter((row) => row.failure);
    fresh(
      this.failures,
      ...failed.map((row) => h("li", {}, h("b", {}, `batch ${row.batch}`), ` ${row.failure}`)),
    );
    this.plot.hidden = this.figures.hidden = !this.data;
    this.draw(this.plot.clientWidth);
  }

  destroy() {
    this.release();
  }

  /** @param {number} width */
  draw(width) {
    if (!this.data || width <= 0) return;
    const { plateau, knee, memory_limit_bytes: limit, rows } = this.data;
    const { height, panels } = curvePanels(width, this.data);
    const [throughput, latency, memory] = panels;
    this.panels = panels;
    set(this.drawing, { width, height, viewBox: `0 0 ${width} ${height}` });
    fresh(
      this.drawing,
      curvePanel(throughput, readableRate),
      curvePanel(latency, readableRate),
      curvePanel(memory, readableBytes),
      plateauMarks(throughput, plateau, bestBatch(rows)?.throughput_per_s ?? 0, knee),
      limitMarks(memory, limit),
      ...panels.map((panel) => kneeMarks(panel, knee)),
      this.cross,
    );
    this.mark();
  }

  /**
   * The batch that is described: pointed at, else pinned, else the knee.
   * @returns {BatchRow | undefined}
   */
  described() {
    const ran = rowsThatRan(this.data?.rows ?? []);
    const batch = this.pointed ?? this.pinned ?? this.data?.knee;
    return (
      ran.find((row) => row.batch === batch) ??
      ran.find((row) => row.batch === this.data?.knee) ??
      ran[0]
    );
  }

  mark() {
    const row = this.described();
    if (!row || !this.data) return;
    const words = this.words(row);
    const batches = rowsThatRan(this.data.rows).map((other) => other.batch);
    const isChosen = this.pointed !== null || this.pinned !== null;
    fresh(
      this.cross,
      ...(isChosen ? this.panels.map((panel) => curveCross(panel, row.batch)) : []),
    );
    fresh(
      this.figures,
      ...words.map(([value, name]) => h("span", {}, h("b", {}, value), ` ${name}`)),
    );
    set(this.drawing, {
      "aria-valuemin": Math.min(...batches),
      "aria-valuemax": Math.max(...batches),
      "aria-valuenow": row.batch,
      "aria-valuetext": words.map(([value, name]) => `${value} ${name}`.trim()).join(", "),
    });
  }

  /** @param {BatchRow} row @returns {[string, string][]} */
  words(row) {
    const isBest = row.batch === bestBatch(this.data?.rows ?? [])?.batch;
    const praise = [row.batch === this.data?.knee && "the knee", isBest && "highest throughput"]
      .filter(Boolean)
      .join(", ");
    const spread = row.spread_ms
      ? `ms (${threeFigures(row.spread_ms[0])}–${threeFigures(row.spread_ms[1])})`
      : "ms";
    /** @type {([string, string] | false)[]} */
    const words = [
      [`batch ${row.batch}`, praise && `· ${praise}`],
      [readableRate(row.throughput_per_s ?? 0), "a second"],
      [threeFigures(row.latency_ms ?? NaN), spread],
      row.peak_bytes ? [readableBytes(row.peak_bytes), "memory"] : false,
      row.utilisation ? [readablePercent(row.utilisation), "utilised"] : false,
      row.is_timed_in_turn ? ["✓", "timed in turn"] : false,
    ];
    return words.filter((word) => word !== false);
  }

  /** @param {number | null} batch */
  point(batch) {
    if (batch === this.pointed) return;
    this.pointed = batch;
    this.mark();
  }

  /** @param {number | null} batch */
  pin(batch) {
    this.pinned = batch;
    this.pointed = null;
    this.mark();
  }

  /** A slider's keys: up and right lead to larger batches. @param {KeyboardEvent} event */
  key(event) {
    const ran = rowsThatRan(this.data?.rows ?? []);
    const at = ran.findIndex((row) => row.batch === this.described()?.batch);
    /** @type {Record<string, string>} */
    const turned = { ArrowUp: "ArrowRight", ArrowDown: "ArrowLeft" };
    const next = indexAfterKey(turned[event.key] ?? event.key, at, ran.length);
    if (event.key === "Escape") this.pin(null);
    else if (next !== at && next >= 0) this.pin(ran[next].batch);
    else return;
    event.preventDefault();
  }

  /** @param {PointerEvent} event @returns {number | null} */
  batchUnder(event) {
    const box = this.drawing.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const under = this.panels.find(
      (panel) =>
        x >= panel.left - 20 &&
        x <= panel.right + 12 &&
        y >= panel.top - 24 &&
        y <= panel.bottom + 22,
    );
    return under?.spots.length ? under.spots[nearestBatch(under.spots, x)].batch : null;
  }
}
