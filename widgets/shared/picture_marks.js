/** The axes and marks of a picture's panel as SVG. */

import { s } from "./dom.js";
import { boxOf, pathOf, pointsAt, toneOf } from "./picture.js";

/** @typedef {import("./picture.js").Frame} Frame */
/** @typedef {import("./picture.js").Mark} Mark */

const HALF = 3.5;
/** The outline of a shape around 0, 0. @type {Record<string, string>} */
const SHAPES = {
  cross: "M-1 -1L1 1M-1 1L1 -1",
  plus: "M-1 0H1M0 -1V1",
  tick: "M0 -1V1",
  up: "M0 -1L1 1H-1Z",
  down: "M0 1L1 -1H-1Z",
  square: "M-1 -1H1V1H-1Z",
};

/** Ticks, gridlines and the axes' names. @param {Frame} frame */
export function axisMarks({ panel, left, right, top, bottom, x, y, xTicks, yTicks }) {
  const isBand = panel.y.kind === "band";
  const up = yTicks.flatMap(({ value, name }) => [
    !isBand && s("line", { x1: left, x2: right, y1: y(value), y2: y(value), class: "pf-gridline" }),
    s("text", { x: left - 7, y: y(value) + 4, class: "pf-tick pf-end" }, name),
  ]);
  const across = xTicks.map(({ value, name }) =>
    s("text", { x: x(value), y: bottom + 15, class: "pf-tick pf-middle" }, name),
  );
  const middle = { x: (left + right) / 2, y: bottom + 30, class: "pf-tick pf-middle" };
  return s(
    "g",
    { "aria-hidden": "true" },
    ...up,
    ...across,
    panel.x.label && s("text", middle, panel.x.label),
    panel.y.label && s("text", { x: left - 7, y: top - 10, class: "pf-tick" }, panel.y.label),
  );
}

/** The elements of a mark, one for each of its rows. @param {Mark} mark @param {Frame} frame @returns {SVGElement[]} */
export function markRows(mark, frame) {
  return DRAWN[mark.mark](mark, frame);
}

/** @type {Record<string, (mark: Mark, frame: Frame) => SVGElement[]>} */
const DRAWN = {
  Boxes: (mark, frame) =>
    Array.from(mark.x, (_, row) => {
      const { x, y, width, height } = boxOf(mark, row, frame);
      const least = { width: Math.max(0.5, width), height: Math.max(0.5, height) };
      const look = mark.is_hollow ? "pf-pic-hollow" : "pf-pic-box";
      return s("rect", { x, y, ...least, class: `${look} ${toneOf(mark, row)}` });
    }),
  Line: (mark, frame) => [
    s("path", {
      d: pathOf(mark, frame),
      "stroke-width": mark.width,
      class: `pf-pic-line pf-pic-${mark.style} ${toneOf(mark, 0)}`,
    }),
  ],
  Area: (mark, frame) => {
    const side = (/** @type {string} */ column) =>
      pathOf(/** @type {any} */ ({ x: mark.x, y: mark[column], is_stepped: true }), frame);
    const [upper, lower] = [side("high"), side("low")];
    if (!upper) return [];
    const back = lower.slice(1).split("L").reverse().join("L");
    return [s("path", { d: `${upper}L${back}Z`, class: `pf-pic-area ${toneOf(mark, 0)}` })];
  },
  Dots: (mark, frame) =>
    Array.from(mark.x, (at, row) => {
      const [x, y] = [frame.x(/** @type {number} */ (at)), frame.y(mark.y[row])];
      const tone = toneOf(mark, row);
      const isRound = mark.shape === "disc" || mark.shape === "ring";
      const shape = `pf-pic-${mark.shape} ${tone}`;
      if (isRound) return s("circle", { cx: x, cy: y, r: 0.6 * mark.size, class: shape });
      const scale = (mark.size / 6) * HALF;
      const transform = `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${scale.toFixed(2)})`;
      return s("path", { d: SHAPES[mark.shape], transform, class: shape });
    }),
  Rules: (mark, frame) => Array.from(mark.at, (at, row) => rule(mark, row, Number(at), frame)),
  Labels: (mark, frame) =>
    mark.texts.map((/** @type {string} */ text, /** @type {number} */ row) => {
      const isLeft = mark.side === "left";
      const x = frame.x(mark.x[row]) + (isLeft ? -7 : 7);
      const y = frame.y(mark.y[row]) - mark.lift + 4;
      const look = `pf-pic-name ${toneOf(mark, row)}${isLeft ? " pf-end" : ""}`;
      return s("text", { x, y, class: `${look}${mark.is_bold ? " pf-pic-bold" : ""}` }, text);
    }),
};

/** A line across the panel, with its name. @param {Mark} mark @param {number} row @param {number} at @param {Frame} frame */
function rule(mark, row, at, { left, right, top, bottom, x, y }) {
  const isUp = mark.axis === "x";
  const ends = isUp
    ? { x1: x(at), x2: x(at), y1: top, y2: bottom }
    : { x1: left, x2: right, y1: y(at), y2: y(at) };
  const isRight = mark.side === "right";
  const place = isUp
    ? { x: x(at) + (isRight ? -4 : 4), y: top + (mark.is_below ? 22 : 9) }
    : { x: isRight ? right - 4 : left + 4, y: y(at) + (mark.is_below ? 13 : -5) };
  const tone = toneOf(mark, row);
  const name = `pf-pic-name ${tone}${isRight ? " pf-end" : ""}`;
  return s(
    "g",
    {},
    s("line", { ...ends, class: `pf-pic-line pf-pic-${mark.style} ${tone}` }),
    mark.names[row] && s("text", { ...place, class: name }, mark.names[row]),
  );
}

/** What is described, through a panel. @param {Frame} frame @param {number} at */
export function crossMarks(frame, at) {
  const x = frame.x(at);
  return [
    s("line", { x1: x, x2: x, y1: frame.top, y2: frame.bottom, class: "pf-cross" }),
    ...pointsAt(frame, at).map((point) =>
      s("circle", { cx: point.x, cy: point.y, r: 4.5, class: "pf-cross-dot" }),
    ),
  ];
}
