/** The view of a stream: its rate, latency by stage, workers, marks, and the current frame. */

import { onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { latencyMarks, rateMarks } from "./marks.js";
import {
  rateChart,
  ROW,
  rounded,
  shapeOf,
  spokenLine,
  unpackedStream,
  workerLine,
} from "./layout.js";

/** @typedef {import("./layout.js").Stream} Stream */

const SPOKEN_EVERY_MS = 10000;

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @returns
 * {import("../shared/host.js").View}
 */
export function stream(root, host) {
  return new StreamView(root, host);
}

class StreamView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host */
  constructor(root, host) {
    this.host = host;
    /** @type {Stream | null} */
    this.stream = null;
    this.spoken = 0;
    this.address = "";
    this.head = h("div", { class: "pf-view-head" });
    this.live = h("p", { class: "pf-stream-live", role: "status", "aria-live": "polite" });
    this.facts = h("p", { class: "pf-readout" });
    this.picture = h("img", { class: "pf-stream-picture", alt: "the current frame" });
    this.drawing = s("svg", { class: "pf-svg", role: "img" });
    this.plot = h("div", { class: "pf-plot pf-stream-plot" }, this.drawing);
    this.bars = s("svg", { class: "pf-svg", role: "img" });
    this.stages = h("div", { class: "pf-plot" }, this.bars);
    this.workers = h("ul", { class: "pf-stream-workers", "aria-label": "workers" });
    this.aside = h("ul", { class: "pf-stream-aside", "aria-label": "frames set aside" });
    const charts = h("div", { class: "pf-stream-charts" }, this.plot, this.stages);
    this.body = h("div", { class: "pf-stream-body" }, this.picture, charts);
    const parts = [this.head, this.live, this.facts, this.body, this.workers, this.aside];
    root.append(h("section", { class: "pf-view pf-stream", "aria-label": "stream" }, ...parts));
    this.release = onWidth(this.plot, (width) => this.draw(width));
  }

  /** @param {any} data */
  show(data) {
    this.stream = unpackedStream(data);
    const known = this.stream;
    for (const part of [this.facts, this.body, this.workers, this.aside]) part.hidden = !known;
    fresh(this.head, h("h2", {}, known?.title ?? "Stream"));
    if (!known) {
      fresh(this.live, "The stream has not begun.");
      return;
    }
    this.speak(known);
    fresh(this.facts, ...facts(known), ...marked(known));
    this.paint(known);
    fresh(this.workers, ...known.nodes.map(workerTile));
    fresh(
      this.aside,
      ...known.failures.map(({ index, stage, message }) =>
        h("li", {}, h("b", {}, `frame ${index}`), ` ${stage}: ${message}`),
      ),
    );
    this.draw(this.plot.clientWidth);
  }

  destroy() {
    this.release();
    if (this.address) URL.revokeObjectURL(this.address);
  }

  /** The state in a sentence, so seldom that it can be listened to. @param {Stream} known */
  speak(known) {
    const now = Date.now();
    const isSteady = known.state === "running" && !known.message;
    if (isSteady && now - this.spoken < SPOKEN_EVERY_MS) return;
    this.spoken = now;
    const line = spokenLine(known);
    if (line !== this.live.textContent) fresh(this.live, line);
  }

  /** The current frame. @param {Stream} known */
  paint(known) {
    this.picture.hidden = !known.picture;
    if (!known.picture) return;
    const { buffer, byteOffset, byteLength } = known.picture;
    const content = new Uint8Array(/** @type {ArrayBuffer} */ (buffer), byteOffset, byteLength);
    const earlier = this.address;
    this.address = URL.createObjectURL(new Blob([content], { type: "image/jpeg" }));
    set(this.picture, { src: this.address });
    if (earlier) URL.revokeObjectURL(earlier);
  }

  /** @param {number} width */
  draw(width) {
    if (!this.stream || width <= 0) return;
    const chart = rateChart(width, this.stream);
    set(this.drawing, {
      width,
      height: chart.height,
      viewBox: `0 0 ${width} ${chart.height}`,
      "aria-label": `frames a second over time; now ${rounded(this.stream.rate)}`,
    });
    fresh(this.drawing, rateMarks(chart, this.stream));
    const rows = [...this.stream.stages, ...(this.stream.latency ? [this.stream.latency] : [])];
    const height = rows.length * ROW;
    const words = rows.map((row) => `${row.name} ${rounded(row.p50)}`).join(", ");
    set(this.bars, {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      "aria-label": `milliseconds a frame by stage, p50: ${words}`,
    });
    fresh(this.bars, ...latencyMarks(width, rows));
  }
}

/** What stands above the charts. @param {Stream} known */
function facts(known) {
  const latency = known.latency;
  /** @type {[string, string][]} */
  const shown = [
    [rounded(known.rate), "frames a second"],
    [known.expected === null ? `${known.done}` : `${known.done} of ${known.expected}`, "frames"],
  ];
  if (latency) {
    const words = [latency.p50, latency.p95, latency.p99].map(rounded).join(" · ");
    shown.push([`${words} ms`, "latency p50 · p95 · p99"]);
  }
  for (const [name, count] of Object.entries(known.queues)) shown.push([`${count}`, name]);
  return shown.map(([value, name]) => h("span", {}, h("b", {}, value), ` ${name}`));
}

/** What went wrong, each beside its mark in the chart. @param {Stream} known */
function marked(known) {
  const found = Object.entries(known.counts).filter(([, count]) => count);
  return found.map(([name, count]) =>
    h("span", {}, sign(shapeOf(name)), " ", h("b", {}, count), ` ${name}`),
  );
}

/** @param {string} shape */
function sign(shape) {
  const size = { width: 11, height: 11, viewBox: "-5.5 -5.5 11 11", "aria-hidden": "true" };
  return s("svg", size, s("path", { d: shape, class: "pf-stream-mark" }));
}

/** A worker: its share as a bar, what it does, and whether it is there. @param {import("./layout.js").Worker} worker */
function workerTile(worker) {
  const share = `${(100 * worker.share).toFixed(0)}%`;
  const extra = [
    worker.hedges ? `${worker.hedges} hedged copies` : "",
    worker.failures ? `lost ${worker.failures} ×` : "",
    worker.state === "up" ? "" : worker.state,
  ].filter(Boolean);
  return h(
    "li",
    { class: worker.state === "up" ? "" : "pf-is-gone", title: worker.host },
    h("b", {}, worker.name),
    h("span", {}, share),
    h("i", { "aria-hidden": "true" }, h("i", { style: `width: ${share}` })),
    h("small", {}, [workerLine(worker), ...extra].join(", ")),
  );
}
