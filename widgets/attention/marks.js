/** Error and speed over the share that is kept, as SVG. */

import { s } from "../shared/dom.js";
import { keepText } from "./table.js";
import { heatText } from "../shared/heat_scale.js";
import { tickText } from "../shared/scale.js";

/** @typedef {import("./layout.js").AttentionFrame} AttentionFrame */
/** @typedef {import("./layout.js").StopPanel} StopPanel */

/**
 * @param {AttentionFrame} frame @param {import("./table.js").AttentionStop[]} stops @returns
 * {SVGElement}
 */
export function attentionChart(frame, stops) {
  const last = frame.panels[frame.panels.length - 1];
  const every = Math.max(1, Math.ceil((stops.length * 40) / Math.max(1, frame.right - frame.left)));
  const shown = stops.filter((stop) => stop.index % every === 0);
  const under = shown.map((stop) =>
    s(
      "text",
      { x: frame.xs[stop.index], y: last.bottom + 15, class: "pf-tick pf-middle" },
      keepText(stop.keep),
    ),
  );
  return s(
    "g",
    { "aria-hidden": "true" },
    ...frame.panels.map((panel) => stopPanel(panel, frame)),
    ...under,
  );
}

/**
 * The chosen stop on every panel.
 * @param {AttentionFrame} frame @param {number} index @returns {SVGElement[]}
 */
export function stopMarks(frame, index) {
  const x = frame.xs[index];
  const last = frame.panels[frame.panels.length - 1];
  const line = s("line", {
    x1: x,
    x2: x,
    y1: frame.panels[0].top,
    y2: last.bottom,
    class: "pf-stop-line",
  });
  const spots = frame.panels.flatMap((panel) => panel.spots.filter((spot) => spot.index === index));
  return [
    line,
    ...spots.map((spot) => s("circle", { cx: spot.x, cy: spot.y, r: 5, class: "pf-stop-dot" })),
  ];
}

/** @param {StopPanel} panel @param {AttentionFrame} frame @returns {SVGElement} */
function stopPanel(panel, frame) {
  const spell =
    panel.equalY === null ? heatText : (/** @type {number} */ value) => `${tickText(value)} ×`;
  const grid = panel.ticks.flatMap((value) => [
    s("line", {
      x1: frame.left,
      x2: frame.right,
      y1: panel.y(value),
      y2: panel.y(value),
      class: "pf-gridline",
    }),
    s("text", { x: frame.left - 8, y: panel.y(value) + 4, class: "pf-tick pf-end" }, spell(value)),
  ]);
  const path = panel.spots.map((spot) => `${spot.x.toFixed(1)} ${spot.y.toFixed(1)}`).join("L");
  const dots = panel.spots.map((spot) =>
    s("circle", {
      cx: spot.x,
      cy: spot.y,
      r: 3,
      class: panel.equalY !== null && spot.y > panel.equalY + 0.5 ? "pf-slow-dot" : "pf-curve-dot",
    }),
  );
  const name = s("text", { x: 0, y: panel.top - 9, class: "pf-tick" }, panel.name);
  return s(
    "g",
    {},
    ...slowBand(panel, frame),
    ...grid,
    name,
    path && s("path", { d: `M${path}`, class: "pf-curve-line" }),
    ...dots,
  );
}

/**
 * The band below 1 ×, which is slower than before.
 * @param {StopPanel} panel @param {AttentionFrame} frame @returns {SVGElement[]}
 */
function slowBand(panel, frame) {
  if (panel.equalY === null) return [];
  const height = Math.max(0, panel.bottom - panel.equalY);
  return [
    s("rect", {
      x: frame.left,
      y: panel.equalY,
      width: frame.right - frame.left,
      height,
      class: "pf-slow-band",
    }),
    s("line", {
      x1: frame.left,
      x2: frame.right,
      y1: panel.equalY,
      y2: panel.equalY,
      class: "pf-equal",
    }),
    height > 15 &&
      s("text", { x: frame.left + 4, y: panel.bottom - 4, class: "pf-tick" }, "slower"),
  ].filter((mark) => mark !== false);
}
