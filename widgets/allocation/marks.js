/** A frontier as SVG: its axes, lines and marks. */

import { lineNames, lossLimitText, steppedPath, uniformNames } from "./layout.js";
import { amountText, layerCount, lostQuantity } from "./table.js";
import { h, s } from "../shared/dom.js";
import { heatText } from "../shared/heat_scale.js";
import { markPath, reachOf } from "../shared/points.js";

/** @typedef {import("./table.js").AllocationTable} AllocationTable */
/** @typedef {import("./table.js").AllocatedPoint} AllocatedPoint */
/** @typedef {import("./layout.js").AllocationFrame} AllocationFrame */
/** @typedef {import("./layout.js").AllocationDot} AllocationDot */

/** @param {AllocationTable} table @param {AllocationFrame} frame @returns {SVGElement} */
export function allocationGrid(table, frame) {
  const { left, right, top, bottom, floorY, x, y } = frame;
  const across = frame.ticksX.flatMap((tick) => [
    s("line", { x1: x(tick), x2: x(tick), y1: top, y2: bottom, class: "pf-gridline" }),
    s(
      "text",
      { x: x(tick), y: bottom + 15, class: "pf-tick pf-middle" },
      amountText(table, tick).replace(" ms", ""),
    ),
  ]);
  const up = frame.ticksY.flatMap((tick) => [
    s("line", { x1: left, x2: right, y1: y(tick), y2: y(tick), class: "pf-gridline" }),
    s("text", { x: left - 7, y: y(tick) + 4, class: "pf-tick pf-end" }, heatText(tick)),
  ]);
  const band = [
    s("rect", {
      x: left,
      y: floorY,
      width: right - left,
      height: bottom - floorY,
      class: "pf-loss-band",
    }),
    s(
      "text",
      { x: left - 7, y: (floorY + bottom) / 2 + 4, class: "pf-tick pf-end" },
      frame.bandText,
    ),
  ];
  const names = [
    s(
      "text",
      { x: right, y: bottom + 32, class: "pf-tick pf-end" },
      table.axis === "latency_ms" ? "latency, ms" : "size",
    ),
    s(
      "text",
      {
        x: 0,
        y: 0,
        transform: `translate(10 ${(top + floorY) / 2}) rotate(-90)`,
        class: "pf-tick pf-middle",
      },
      lostQuantity(table),
    ),
  ];
  return s("g", { "aria-hidden": "true" }, ...band, ...across, ...up, ...names);
}

/**
 * The area beyond the budget, and the baseline's position.
 * @param {AllocationTable} table @param {AllocationFrame} frame @returns {SVGElement}
 */
export function budgetMarks(table, frame) {
  const { left, right, top, bottom, y, baselineX, limitX, limitY } = frame;
  const names = lineNames(table, frame).map((name) =>
    s("text", { x: name.start, y: top - 8, class: "pf-budget-name" }, name.text),
  );
  return s(
    "g",
    { "aria-hidden": "true" },
    limitX !== null &&
      s("rect", {
        x: limitX,
        y: top,
        width: right - limitX,
        height: bottom - top,
        class: "pf-beyond",
      }),
    limitY !== null &&
      s("rect", { x: left, y: top, width: right - left, height: limitY - top, class: "pf-beyond" }),
    s("line", { x1: baselineX, x2: baselineX, y1: top, y2: bottom, class: "pf-baseline" }),
    s("path", {
      d: `M${baselineX - 6} ${y(0)}h12M${baselineX} ${y(0) - 6}v12`,
      class: "pf-baseline-mark",
    }),
    limitX !== null &&
      s("line", { x1: limitX, x2: limitX, y1: top, y2: bottom, class: "pf-budget" }),
    limitY !== null &&
      s("line", { x1: left, x2: right, y1: limitY, y2: limitY, class: "pf-budget" }),
    limitY !== null &&
      s(
        "text",
        { x: right - 4, y: limitY - 5, class: "pf-budget-name pf-end" },
        lossLimitText(table),
      ),
    ...names,
  );
}

/**
 * The frontier's line, and thin ones to its achieved points.
 * @param {AllocationDot[]} dots @returns {SVGElement}
 */
export function frontierLines(dots) {
  const links = dots
    .filter((dot) => dot.isAchieved)
    .map((dot) => achievedLink(dots[dot.index], dot));
  return s(
    "g",
    { "aria-hidden": "true" },
    ...links,
    s("path", { d: steppedPath(dots), class: "pf-frontier" }),
  );
}

/** @param {AllocationDot} dot @param {string} id @param {string} label @returns {SVGElement} */
export function allocationMark(dot, id, label) {
  return s("path", {
    d: allocationShape(dot),
    class: allocationLook(dot),
    role: "option",
    id,
    "aria-label": label,
  });
}

/**
 * The achieved mark of a point; it is no option of its own.
 * @param {AllocationDot} dot @returns {SVGElement}
 */
export function achievedMark(dot) {
  return s("path", { d: allocationShape(dot), class: allocationLook(dot), "aria-hidden": "true" });
}

/**
 * @param {AllocationTable} table @param {AllocationFrame} frame @param {AllocationDot[]} dots
 * @returns {SVGElement}
 */
export function uniformLabels(table, frame, dots) {
  const labels = uniformNames(table, frame, dots).flatMap(({ text, box, leader }) => [
    leader &&
      s("line", {
        x1: leader[0].x,
        y1: leader[0].y,
        x2: leader[1].x,
        y2: leader[1].y,
        class: "pf-leader",
      }),
    s("text", { x: box.x + 1, y: box.y + box.height - 4, class: "pf-dot-name" }, text),
  ]);
  return s("g", { "aria-hidden": "true" }, ...labels);
}

/**
 * A ring around the chosen point; dashed around the one that meets what was asked for, until a
 * point is chosen.
 * @param {AllocationDot} dot @param {boolean} isChosen @returns {SVGElement}
 */
export function chosenRing(dot, isChosen) {
  const look = isChosen ? "pf-knee" : "pf-knee pf-knee-proposed";
  return s("circle", { cx: dot.x, cy: dot.y, r: 8, class: look });
}

/**
 * The error bars of a point's losses, and the link to its achieved mark.
 * @param {AllocationTable} table @param {AllocationFrame} frame @param {AllocationDot[]} dots all
 * of them @param {AllocationDot} dot a predicted one
 */
export function pointedMarks(table, frame, dots, dot) {
  const point = table.points[dot.index];
  const real = dots.find((other) => other.isAchieved && other.index === dot.index);
  return [
    real && achievedLink(dot, real, "pf-achieved-link pf-strong"),
    lossReach(dot, point.loss, point.lossError, frame),
    real && point.achieved && lossReach(real, point.achieved.loss, point.achieved.lossError, frame),
    ...[dot, real].map(
      (mark) => mark && s("circle", { cx: mark.x, cy: mark.y, r: 7, class: "pf-ring-pointed" }),
    ),
  ];
}

/** The formats of a point, and how many layers have each. @param {AllocatedPoint} point */
export function formatChips({ counts, around }) {
  const chips = Object.entries(counts).map(([format, count]) =>
    h("li", { class: "pf-recipe-chip" }, format, h("small", {}, layerCount(count))),
  );
  const between = around !== "fp32" && h("li", { class: "pf-note" }, `${around} between them`);
  return h("ul", { class: "pf-format-chips" }, ...chips, between);
}

/** The legend of the marks. @param {AllocationTable} table @returns {HTMLElement} */
export function allocationLegend(table) {
  const marks = [
    legendItem("frontier, predicted", { isUniform: false, isAchieved: false }),
    table.points.some((point) => point.isUniform) &&
      legendItem("one format for all", { isUniform: true, isAchieved: false }),
    table.points.some((point) => point.achieved) &&
      legendItem("achieved", { isUniform: false, isAchieved: true }),
    h(
      "li",
      {},
      s(
        "svg",
        { width: 16, height: 16, "aria-hidden": "true" },
        s("circle", { cx: 8, cy: 8, r: 6, class: "pf-knee" }),
      ),
      "chosen",
    ),
  ];
  return h("ul", { class: "pf-agreements pf-allocation-legend" }, ...marks);
}

/** @param {string} text @param {{ isUniform: boolean, isAchieved: boolean }} look */
function legendItem(text, look) {
  const dot = { ...look, index: 0, x: 8, y: 8, radius: look.isUniform ? 4.6 : 4 };
  return h(
    "li",
    {},
    s("svg", { width: 16, height: 16, "aria-hidden": "true" }, achievedMark(dot)),
    text,
  );
}

/** @param {AllocationDot} dot */
function allocationShape(dot) {
  return markPath(dot.isUniform ? null : "compute", dot.x, dot.y, dot.radius);
}

/** @param {AllocationDot} dot */
function allocationLook(dot) {
  const kind = dot.isAchieved ? " pf-is-achieved" : dot.isUniform ? " pf-is-uniform" : "";
  return `pf-allocation-dot${kind}`;
}

/** @param {AllocationDot} from @param {AllocationDot} to @param {string} [look] */
function achievedLink(from, to, look = "pf-achieved-link") {
  return s("line", { x1: from.x, y1: from.y, x2: to.x, y2: to.y, class: look });
}

/**
 * @param {AllocationDot} dot @param {number} loss @param {number} error @param {AllocationFrame}
 * frame
 */
function lossReach(dot, loss, error, frame) {
  const reach = reachOf(loss, error, frame.y, frame.bottom, frame.top);
  return (
    reach && s("line", { x1: dot.x, x2: dot.x, y1: reach[0], y2: reach[1], class: "pf-error-bar" })
  );
}
