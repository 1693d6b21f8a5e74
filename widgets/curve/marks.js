/** The panels of a batch sweep as SVG. */

import { s } from "../shared/dom.js";
import { readableBytes, readablePercent } from "../shared/format.js";
import { textWidth } from "../shared/lettering.js";

/** @typedef {import("./layout.js").CurvePanel} CurvePanel */

/**
 * The axes and the curve of a panel.
 * @param {CurvePanel} panel @param {(value: number) => string} spell @returns {SVGElement}
 */
export function curvePanel(panel, spell) {
  const up = panel.ticks.flatMap((value) => [
    s("line", {
      x1: panel.left,
      x2: panel.right,
      y1: panel.y(value),
      y2: panel.y(value),
      class: "pf-gridline",
    }),
    s("text", { x: panel.left - 7, y: panel.y(value) + 4, class: "pf-tick pf-end" }, spell(value)),
  ]);
  const across = panel.batches.map((batch) =>
    s("text", { x: panel.x(batch), y: panel.bottom + 15, class: "pf-tick pf-middle" }, batch),
  );
  const name = s("text", { x: panel.left - 56, y: panel.top - 10, class: "pf-tick" }, panel.name);
  const path = panel.spots.map((spot) => `${spot.x.toFixed(1)} ${spot.y.toFixed(1)}`).join("L");
  const dots = panel.spots.map((spot) =>
    s("circle", { cx: spot.x, cy: spot.y, r: 3, class: "pf-curve-dot" }),
  );
  const refused = panel.refused.map((spot) =>
    s("path", { d: crossPath(spot.x, spot.y, 3.5), class: "pf-refused" }),
  );
  return s(
    "g",
    { "aria-hidden": "true" },
    ...up,
    ...across,
    name,
    path && s("path", { d: `M${path}`, class: "pf-curve-line" }),
    ...dots,
    ...refused,
  );
}

/**
 * The line that a batch must reach to be worth running.
 * @param {CurvePanel} panel @param {number} plateau @param {number} best @param {number} knee
 * @returns {SVGElement}
 */
export function plateauMarks(panel, plateau, best, knee) {
  const y = panel.y(plateau * best);
  const text = `${readablePercent(plateau).replace(".0", "")} of the best`;
  const isKneeRight = panel.x(knee) > (panel.left + panel.right) / 2;
  const place = isKneeRight
    ? { x: panel.left + 4, y: y - 5 }
    : { x: panel.right - 4, y: y + 14, "text-anchor": "end" };
  return s(
    "g",
    { "aria-hidden": "true" },
    s("line", { x1: panel.left, x2: panel.right, y1: y, y2: y, class: "pf-plateau" }),
    s("text", { ...place, class: "pf-tick" }, text),
  );
}

/**
 * The memory that there is.
 * @param {CurvePanel} panel @param {number} limit @returns {SVGElement | null}
 */
export function limitMarks(panel, limit) {
  if (!(limit > 0)) return null;
  const y = panel.y(limit);
  const text = `limit ${readableBytes(limit)}`;
  return s(
    "g",
    { "aria-hidden": "true" },
    s("line", { x1: panel.left, x2: panel.right, y1: y, y2: y, class: "pf-limit" }),
    s("text", { x: panel.left + 4, y: y - 5, class: "pf-limit-name" }, text),
  );
}

/**
 * A ring around the knee, and in the first panel its name.
 * @param {CurvePanel} panel @param {number} knee @returns {SVGElement | null}
 */
export function kneeMarks(panel, knee) {
  const spot = panel.spots.find((other) => other.batch === knee);
  if (!spot) return null;
  const ring = s("circle", { cx: spot.x, cy: spot.y, r: 7, class: "pf-knee" });
  const drop = s("line", {
    x1: spot.x,
    x2: spot.x,
    y1: spot.y + 7,
    y2: panel.bottom,
    class: "pf-knee-drop",
  });
  if (panel.name !== "examples a second") return s("g", { "aria-hidden": "true" }, ring);
  const text = `batch ${knee}`;
  const isLeft = spot.x - panel.left > textWidth(text, 12) + 16;
  const name = s(
    "text",
    {
      x: spot.x + (isLeft ? -7 : 7),
      y: panel.bottom - 7,
      class: `pf-knee-name${isLeft ? " pf-end" : ""}`,
    },
    text,
  );
  return s("g", { "aria-hidden": "true" }, drop, ring, name);
}

/**
 * The batch that the figures are of.
 * @param {CurvePanel} panel @param {number} batch @returns {SVGElement | null}
 */
export function curveCross(panel, batch) {
  const spot = panel.spots.find((other) => other.batch === batch);
  if (!spot) return null;
  const line = s("line", {
    x1: spot.x,
    x2: spot.x,
    y1: panel.top,
    y2: panel.bottom,
    class: "pf-cross",
  });
  return s("g", {}, line, s("circle", { cx: spot.x, cy: spot.y, r: 4.5, class: "pf-cross-dot" }));
}

/** @param {number} x @param {number} y @param {number} half */
function crossPath(x, y, half) {
  const [left, right, top, bottom] = [x - half, x + half, y - half, y + half];
  return `M${left} ${top}L${right} ${bottom}M${left} ${bottom}L${right} ${top}`;
}
