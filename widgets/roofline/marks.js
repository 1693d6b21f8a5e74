/** The roofline's layout as SVG. */

import { roofGflops, roofsOf } from "./layout.js";
import { dotLabels, LETTER, memoryName, roofNames } from "./names.js";
import { s } from "../shared/dom.js";
import { markPath } from "../shared/points.js";
import { tickText } from "../shared/scale.js";

/** @typedef {import("./layout.js").Frame} Frame */
/** @typedef {import("./layout.js").Ceiling} Ceiling */
/** @typedef {import("./layout.js").Dot} Dot */

/** Lines of the grid with their values. @param {Frame} frame @returns {SVGElement} */
export function rooflineGrid(frame) {
  const across = frame.ticksX.flatMap((value) => [
    line(frame.x(value), frame.top, frame.x(value), frame.bottom, "pf-gridline"),
    s(
      "text",
      { x: frame.x(value), y: frame.bottom + 14, class: "pf-tick pf-middle" },
      tickText(value),
    ),
  ]);
  const up = frame.ticksY.flatMap((value) => [
    line(frame.left, frame.y(value), frame.right, frame.y(value), "pf-gridline"),
    s(
      "text",
      { x: frame.left - 6, y: frame.y(value) + 4, class: "pf-tick pf-end" },
      tickText(value),
    ),
  ]);
  const names = [
    s("text", { x: 2, y: 11, class: "pf-tick" }, "GFLOP/s"),
    s(
      "text",
      { x: frame.right, y: frame.bottom + 29, class: "pf-tick pf-end" },
      "FLOP for each byte moved",
    ),
  ];
  return s("g", { "aria-hidden": "true" }, ...across, ...up, ...names);
}

/**
 * The roofs, the format that the model computes in clearly and the others faintly, each with its
 * rate.
 * @param {Frame} frame @param {Ceiling} ceiling @param {Dot[]} dots @returns {SVGElement}
 */
export function rooflineRoofs(frame, ceiling, dots) {
  const others = roofsOf(ceiling).filter((roof) => roof.name !== "fp32");
  const lines = others.map((roof) =>
    s("path", { d: otherRoofPath(frame, ceiling, roof.rate), class: "pf-roof-other" }),
  );
  const names = roofNames(frame, ceiling).map(({ text, y, isMain }) =>
    s(
      "text",
      { x: frame.right - 2, y: y - 4, class: `pf-roof-name pf-end${isMain ? " pf-strong" : ""}` },
      text,
    ),
  );
  return s(
    "g",
    { "aria-hidden": "true" },
    ...lines,
    mainRoof(frame, ceiling),
    ...names,
    memoryLabel(frame, ceiling, dots),
  );
}

/**
 * Names of the costliest dots with thin lines to them.
 * @param {Dot[]} dots @param {Frame} frame @param {Ceiling} ceiling @returns {SVGElement}
 */
export function rooflineLabels(dots, frame, ceiling) {
  const labels = dotLabels(dots, frame, ceiling).flatMap(({ text, box, leader }) => [
    leader && line(leader[0].x, leader[0].y, leader[1].x, leader[1].y, "pf-leader"),
    s(
      "text",
      { x: box.x + box.width / 2, y: box.y + LETTER, class: "pf-dot-name pf-middle" },
      text,
    ),
  ]);
  return s("g", { "aria-hidden": "true" }, ...labels);
}

/**
 * A dot as an option of the list that the drawing is for a screen reader.
 * @param {Dot} dot @param {string} id @param {string} label @returns {SVGElement}
 */
export function dotMark(dot, id, label) {
  return s("path", {
    id,
    role: "option",
    "aria-label": label,
    "aria-selected": "false",
    d: markPath(dot.bound, dot.x, dot.y, dot.radius),
    class: `pf-dot pf-of-${dot.bound ?? "none"}`,
  });
}

/** A ring around a dot. @param {Dot} dot @param {string} look @returns {SVGElement} */
export function dotRing(dot, look) {
  return s("path", { d: markPath(dot.bound, dot.x, dot.y, dot.radius + 3.5), class: look });
}

/**
 * How far a dot could rise: from it up to its roof.
 * @param {Dot} dot @param {Frame} frame @param {Ceiling} ceiling @returns {SVGElement | null}
 */
export function headroom(dot, frame, ceiling) {
  const roof = frame.y(roofGflops(ceiling, dot.intensity));
  if (dot.y - dot.radius - 4 <= roof) return null;
  const cap = line(dot.x - 4, roof, dot.x + 4, roof, "pf-headroom-cap");
  return s("g", {}, line(dot.x, dot.y - dot.radius - 4, dot.x, roof, "pf-headroom"), cap);
}

/** @param {Frame} frame @param {Ceiling} ceiling @returns {SVGElement} */
function mainRoof(frame, ceiling) {
  const ridge = ceiling.fp32_gflops / ceiling.bandwidth_gbs;
  const start = Math.max(frame.lowest, frame.floor / ceiling.bandwidth_gbs);
  const spots = [
    [start, start * ceiling.bandwidth_gbs],
    [ridge, ceiling.fp32_gflops],
    [frame.highest, ceiling.fp32_gflops],
  ];
  return s("path", { d: roofPath(frame, spots), class: "pf-roof-main" });
}

/** @param {Frame} frame @param {Ceiling} ceiling @param {number} rate */
function otherRoofPath(frame, ceiling, rate) {
  const start = Math.max(rate / ceiling.bandwidth_gbs, frame.lowest);
  const ridge = ceiling.fp32_gflops / ceiling.bandwidth_gbs;
  const rise = rate > ceiling.fp32_gflops ? [[ridge, ceiling.fp32_gflops]] : [];
  return roofPath(frame, [...rise, [start, rate], [frame.highest, rate]]);
}

/** @param {Frame} frame @param {number[][]} spots */
function roofPath(frame, spots) {
  return `M${spots.map(([x, y]) => `${frame.x(x).toFixed(1)} ${frame.y(y).toFixed(1)}`).join("L")}`;
}

/**
 * @param {Frame} frame @param {Ceiling} ceiling @param {Dot[]} dots @returns {SVGElement | null}
 */
function memoryLabel(frame, ceiling, dots) {
  const name = memoryName(frame, ceiling, dots);
  if (!name) return null;
  const degrees = ((-name.angle * 180) / Math.PI).toFixed(2);
  const turned = `translate(${name.x.toFixed(1)} ${name.y.toFixed(1)}) rotate(${degrees})`;
  return s("text", { transform: turned, y: -5, class: "pf-roof-name pf-strong" }, name.text);
}

/**
 * @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 @param {string} look
 * @returns {SVGElement}
 */
function line(x1, y1, x2, y2, look) {
  return s("line", {
    x1: x1.toFixed(1),
    y1: y1.toFixed(1),
    x2: x2.toFixed(1),
    y2: y2.toFixed(1),
    class: look,
  });
}
