/** The axes and marks of a picture's panel as SVG. */

import { s } from "./dom.js";
import { clamped } from "./scale.js";
import { textWidth } from "./lettering.js";
import { boxOf, cellsOf, hasPlace, pathOf, pointsAt, sizeOf, toneOf } from "./picture.js";

/** @typedef {import("./picture.js").Frame} Frame */
/** @typedef {import("./picture.js").Mark} Mark */

const HALF = 3.5;
const NAMED = 440; // pixels of a panel's width: in less, points have no names beside them
/** Where a label stands from its point. @type {Record<string, [number, string]>} */
const BESIDE = { left: [-7, "pf-end"], right: [7, ""], middle: [0, "pf-middle"] };
/** The outline of a shape around 0, 0. @type {Record<string, string>} */
const SHAPES = {
  disc: "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0 -2 0Z",
  ring: "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0 -2 0Z",
  cross: "M-1 -1L1 1M-1 1L1 -1",
  plus: "M-1 0H1M0 -1V1",
  tick: "M0 -1V1",
  up: "M0 -1.3L1.3 0.95H-1.3Z",
  down: "M0 1.3L1.3 -0.95H-1.3Z",
  square: "M-0.91 -0.91H0.91V0.91H-0.91Z",
  diamond: "M0 -1.3L1.3 0L0 1.3L-1.3 0Z",
};

/** A shape in a text, for the dots that it counts. @param {string} shape @param {string} tone */
export function signOf(shape, tone) {
  const size = { width: 11, height: 11, viewBox: "-5.5 -5.5 11 11", "aria-hidden": "true" };
  const look = { d: SHAPES[shape], transform: "scale(3.5)", class: `pf-pic-${shape} ${tone}` };
  return s("svg", size, s("path", look));
}

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
      const look = mark.is_hollow ? "pf-pic-hollow" : mark.is_tint ? "pf-pic-tint" : "pf-pic-box";
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
    const look = mark.is_tint ? "pf-pic-band" : "pf-pic-area";
    return [s("path", { d: `${upper}L${back}Z`, class: `${look} ${toneOf(mark, 0)}` })];
  },
  Heat: (mark, frame) =>
    Array.from(cellsOf(mark, frame), ([shade, d]) =>
      s("path", { d, class: `pf-pic-heat pf-tone-heat-${shade - 1}` }),
    ),
  Dots: (mark, frame) =>
    Array.from(mark.x, (at, row) => {
      if (!hasPlace(mark, row, frame)) return s("g", {});
      const [x, y] = [frame.x(/** @type {number} */ (at)), frame.y(mark.y[row])];
      const size = sizeOf(mark, row);
      const shape = typeof mark.shape === "string" ? mark.shape : mark.shape[row];
      const look = `pf-pic-${shape} ${toneOf(mark, row)}`;
      const isRound = shape === "disc" || shape === "ring";
      if (isRound) return s("circle", { cx: x, cy: y, r: 0.6 * size, class: look });
      const scale = (size / 6) * HALF;
      const transform = `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${scale.toFixed(2)})`;
      return s("path", { d: SHAPES[shape], transform, class: look });
    }),
  Names: (mark, { left, right, x: across, y: up }) =>
    mark.texts.map((/** @type {string} */ text, /** @type {number} */ row) => {
      if (right - left < NAMED) return s("g", {});
      const [x, y] = [across(mark.x[row]), up(mark.y[row])];
      const half = textWidth(text, 11) / 2;
      const middle = clamped(x + mark.across[row], left + half, right - half);
      const height = y - mark.up[row];
      const [x2, y2] = [
        clamped(x, middle - half, middle + half),
        clamped(y, height - 7, height + 7),
      ];
      const look = `pf-pic-name pf-middle ${toneOf(mark, row)}`;
      return s(
        "g",
        {},
        s("line", { x1: x, y1: y, x2, y2, class: "pf-leader" }),
        s("text", { x: middle, y: height + 4, class: look }, text),
      );
    }),
  Rules: (mark, frame) => Array.from(mark.at, (at, row) => rule(mark, row, Number(at), frame)),
  Labels: (mark, frame) =>
    mark.texts.map((/** @type {string} */ text, /** @type {number} */ row) => {
      const [off, anchor] = BESIDE[mark.side];
      const [x, y] = [frame.x(mark.x[row]) + off, frame.y(mark.y[row]) - mark.lift + 4];
      const look = `pf-pic-name ${toneOf(mark, row)} ${anchor}`;
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

/** From a dot up to its reach. @param {import("./picture.js").Spot} spot @param {Frame} frame */
export function reachMark({ mark, row, x, width, y }, frame) {
  const [middle, top] = [x + width / 2, frame.y(mark.reach?.[row])];
  if (!(top < y - 4)) return null;
  const d = `M${middle} ${y - 4}V${top}M${middle - 4} ${top}h8`;
  return s("path", { d, class: "pf-pic-reach" });
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
