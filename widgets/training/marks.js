/** A training's charts as SVG. */

import { s } from "../shared/dom.js";
import { readableCount } from "../shared/format.js";
import { tickText } from "../shared/scale.js";
import { HEAT_HEIGHT, heatStep, pathOf, sizeY } from "./layout.js";

/** @typedef {import("./layout.js").Band} Band */
/** @typedef {import("./layout.js").Training} Training */

/** The axes and the curve of a band. @param {Band} band @param {number} every @returns {SVGElement} */
export function bandMarks(band, every) {
  const grid = band.ticks.flatMap((value) => [
    s("line", {
      x1: band.left,
      x2: band.right,
      y1: band.y(value),
      y2: band.y(value),
      class: "pf-gridline",
    }),
    s("text", { x: band.left - 7, y: band.y(value) + 4, class: "pf-tick pf-end" }, written(value)),
  ]);
  return s(
    "g",
    { "aria-hidden": "true" },
    ...grid,
    s("text", { x: band.left - 62, y: band.top - 9, class: "pf-tick" }, band.curve.name),
    s("path", { d: pathOf(band, every), class: "pf-train-line" }),
  );
}

/** @param {number} value */
function written(value) {
  if (Math.abs(value) >= 10000) return readableCount(value);
  return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(0) : tickText(value);
}

/**
 * Where it computed in lower precision, and the steps that were skipped, in the loss's band.
 * @param {Band} band @param {Training} training @returns {SVGElement}
 */
export function precisionMarks(band, training) {
  const spans = training.lower.map(([start, end]) =>
    s("rect", {
      x: band.x(start),
      y: band.top,
      width: Math.max(1, band.x(end - 1) - band.x(start)),
      height: band.bottom - band.top,
      class: "pf-train-lower",
    }),
  );
  const first = training.lower[0];
  const name =
    first &&
    s(
      "text",
      { x: band.x(first[0]) + 4, y: band.bottom - 5, class: "pf-tick" },
      training.precision,
    );
  const skipped = training.skipped.map((step) =>
    s("path", {
      d: `M${band.x(step) - 3} ${band.bottom - 3}l6 6m0 -6l-6 6`,
      class: "pf-train-skipped",
    }),
  );
  return s("g", { "aria-hidden": "true" }, ...spans, name, ...skipped);
}

/**
 * A line at each switch through all bands, numbered as in the list below.
 * @param {Band[]} bands @param {Training} training @returns {SVGElement}
 */
export function switchMarks(bands, training) {
  const [top, bottom] = [bands[0].top, bands[bands.length - 1].bottom];
  const marks = training.events.flatMap((event, index) => {
    const x = bands[0].x(event.step);
    return [
      s("line", { x1: x, x2: x, y1: top, y2: bottom, class: "pf-train-switch" }),
      s("text", { x: x + 3, y: top + 9, class: "pf-tick" }, index + 1),
    ];
  });
  return s("g", { "aria-hidden": "true" }, ...marks);
}

/** The step that is described. @param {Band[]} bands @param {number} step @returns {SVGElement} */
export function crossMarks(bands, step) {
  const x = bands[0].x(step);
  return s("line", {
    x1: x,
    x2: x,
    y1: bands[0].top,
    y2: bands[bands.length - 1].bottom,
    class: "pf-cross",
  });
}

/**
 * The sizes of the gradient over the steps.
 * @param {import("./layout.js").Cell[]} cells @param {Training} training @param {{left: number,
 * right: number}} edges @returns {SVGElement}
 */
export function heatMarks(cells, training, edges) {
  const powers = [-32, -24, -16, -8, 0].filter((power) => sizeY(training, power) > 0);
  const ticks = powers.flatMap((power) => [
    s("line", {
      x1: edges.left,
      x2: edges.right,
      y1: sizeY(training, power),
      y2: sizeY(training, power),
      class: "pf-gridline",
    }),
    s(
      "text",
      { x: edges.left - 7, y: sizeY(training, power) + 4, class: "pf-tick pf-end" },
      `2^${power}`,
    ),
  ]);
  const normal = sizeY(training, -14);
  const spots = cells.map((cell) =>
    s("rect", {
      x: cell.x.toFixed(1),
      y: cell.y.toFixed(1),
      width: (cell.width + 0.4).toFixed(1),
      height: (cell.height + 0.2).toFixed(1),
      class: `pf-train-heat-${heatStep(cell.share)}`,
    }),
  );
  return s(
    "g",
    { "aria-hidden": "true" },
    ...ticks,
    ...spots,
    s("line", {
      x1: edges.left,
      x2: edges.right,
      y1: normal,
      y2: normal,
      class: "pf-train-normal",
    }),
    s("line", {
      x1: edges.left,
      x2: edges.right,
      y1: HEAT_HEIGHT,
      y2: HEAT_HEIGHT,
      class: "pf-gridline",
    }),
  );
}
