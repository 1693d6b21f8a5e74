/** The marks of a stream's charts. */

import { s } from "../shared/dom.js";
import { latencyBars, ratePath, rounded, ROW, SHAPES } from "./layout.js";

/**
 * The rate over time, and a mark for each thing that went wrong.
 * @param {import("./layout.js").Chart} chart @param {import("./layout.js").Stream} stream
 */
export function rateMarks(chart, stream) {
  const lines = chart.ticks.flatMap((value) => [
    s("line", {
      x1: chart.left,
      x2: chart.right,
      y1: chart.y(value),
      y2: chart.y(value),
      class: "pf-gridline",
    }),
    s(
      "text",
      { x: chart.left - 6, y: chart.y(value) + 4, class: "pf-tick pf-end" },
      rounded(value),
    ),
  ]);
  const seconds = chart.seconds.map((value) =>
    s(
      "text",
      { x: chart.x(value), y: chart.bottom + 15, class: "pf-tick pf-middle" },
      `${rounded(value)} s`,
    ),
  );
  const events = stream.events.filter(({ kind }) => kind in SHAPES);
  const marks = events.map((event) =>
    s(
      "path",
      {
        d: SHAPES[event.kind],
        transform: `translate(${chart.x(event.at_s).toFixed(1)} ${chart.top - 9})`,
        class: "pf-stream-mark",
      },
      s("title", {}, eventLine(event)),
    ),
  );
  return s(
    "g",
    { "aria-hidden": "true" },
    ...lines,
    ...seconds,
    s("path", { d: ratePath(chart, stream), class: "pf-stream-line" }),
    ...marks,
  );
}

/** A mark in words. @param {import("./layout.js").Mark} event */
export function eventLine(event) {
  const group = event.group === null ? "" : `group ${event.group}`;
  const parts = [`${rounded(event.at_s)} s`, event.kind, event.node, group, event.text];
  return parts.filter(Boolean).join(" · ");
}

/**
 * A bar to p50 and a line to p99 for each stage.
 * @param {number} width @param {import("./layout.js").Spread[]} rows
 */
export function latencyMarks(width, rows) {
  return latencyBars(width, rows).map(({ row, y, start, p50, p95, p99 }) =>
    s(
      "g",
      {},
      s("text", { x: start - 8, y: y + 4, class: "pf-tick pf-end" }, row.name.slice(0, 14)),
      s("rect", {
        x: start,
        y: y - ROW / 4,
        width: Math.max(1, p50 - start),
        height: ROW / 2,
        class: "pf-stream-bar",
      }),
      s("path", { d: `M${p50} ${y}H${p99}M${p95} ${y - 5}v10`, class: "pf-stream-spread" }),
      s(
        "text",
        { x: p99 + 7, y: y + 4, class: "pf-tick" },
        [row.p50, row.p95, row.p99].map(rounded).join(" · "),
      ),
      s("title", {}, `${row.name}: p50, p95 and p99 in milliseconds a frame`),
    ),
  );
}
