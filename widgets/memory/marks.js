/** A call's memory as SVG: the stacked steps, the peak, and the boxes of the map. */

import { h, s } from "../shared/dom.js";
import { readableBytes, threeFigures } from "../shared/format.js";
import { textWidth, withoutMiddle } from "../shared/lettering.js";
import {
  aliveByPart,
  aliveOfLayer,
  baseOf,
  drawnEvents,
  stackedPaths,
  stepPath,
} from "./layout.js";
import { tickText } from "../shared/scale.js";
import { nameOrModel } from "./words.js";

/** @typedef {import("./layout.js").Timeline} Timeline */
/** @typedef {import("./layout.js").MemoryFrame} MemoryFrame */
/** @typedef {import("./layout.js").Stacking} Stacking */
/** @typedef {import("./map.js").MapCell} MapCell */

const MAP_LETTER = 11;

/**
 * Lines of the grid with their values.
 * @param {MemoryFrame} frame @param {string} [across] what goes from left to right
 * @returns {SVGElement}
 */
export function memoryGrid(frame, across = "ms into the call") {
  const up = frame.ticksY.flatMap((value) => [
    s("line", {
      x1: frame.left,
      x2: frame.right,
      y1: frame.y(value),
      y2: frame.y(value),
      class: "pf-gridline",
    }),
    s(
      "text",
      { x: frame.left - 7, y: frame.y(value) + 4, class: "pf-tick pf-end" },
      readableBytes(value),
    ),
  ]);
  const values = frame.ticksX.map((value) =>
    s(
      "text",
      { x: frame.x(value), y: frame.bottom + 15, class: "pf-tick pf-middle" },
      tickText(value),
    ),
  );
  const name = s("text", { x: frame.right, y: frame.bottom + 30, class: "pf-tick pf-end" }, across);
  return s("g", { "aria-hidden": "true" }, ...up, ...values, name);
}

/**
 * The live bytes of each part, stacked.
 * @param {Timeline} timeline @param {MemoryFrame} frame @param {Stacking} stacking
 * @returns {SVGElement}
 */
export function memoryAreas(timeline, frame, stacking) {
  const events = drawnEvents(timeline, frame.right - frame.left);
  const times = events.map((event) => timeline.time[event]);
  const stacks = aliveByPart(timeline, events, stacking);
  const whole = events.map((event) => timeline.alive[event] + baseOf(stacking));
  return stackedAreas(times, stacks, whole, timeline.duration, frame, stacking.classes);
}

/**
 * Stacked step areas with a rim above them.
 * @param {number[]} times @param {number[][]} stacks by moment @param {number[]} whole their sums
 * @param {number} end @param {MemoryFrame} frame @param {string[]} classes @returns {SVGElement}
 */
export function stackedAreas(times, stacks, whole, end, frame, classes) {
  const paths = stackedPaths(times, stacks, end, frame);
  return s(
    "g",
    { "aria-hidden": "true" },
    ...paths.map((d, part) => d && s("path", { d, class: classes[part] })),
    s("path", { d: stepPath(times, whole, end, frame), class: "pf-memory-rim" }),
  );
}

/**
 * The live bytes of the selected layer, from the bottom.
 * @param {Timeline} timeline @param {MemoryFrame} frame @param {string} layer @returns {SVGElement
 * | null}
 */
export function memoryOfLayer(timeline, frame, layer) {
  if (!layer) return null;
  const events = drawnEvents(timeline, frame.right - frame.left);
  const times = events.map((event) => timeline.time[event]);
  const bytes = aliveOfLayer(timeline, events, layer);
  return bytes.some((value) => value > 0)
    ? s("path", { d: stepPath(times, bytes, timeline.duration, frame), class: "pf-memory-own" })
    : null;
}

/**
 * The moment when most is alive, with its figures.
 * @param {MemoryFrame} frame @param {number} time @param {number} bytes @param {string} [when]
 * @returns {SVGElement}
 */
export function memoryPeak(frame, time, bytes, when = `${threeFigures(time)} ms`) {
  const [x, y] = [frame.x(time), frame.y(bytes)];
  const text = `peak ${readableBytes(bytes)} at ${when}`;
  const isLeft = x + 8 + textWidth(text, 12) > frame.right;
  return s(
    "g",
    { "aria-hidden": "true" },
    s("line", { x1: x, x2: x, y1: y, y2: frame.bottom, class: "pf-memory-peak" }),
    s("circle", { cx: x, cy: y, r: 4, class: "pf-memory-top" }),
    s(
      "text",
      { x: x + (isLeft ? -8 : 8), y: y - 6, class: `pf-peak-name${isLeft ? " pf-end" : ""}` },
      text,
    ),
  );
}

/**
 * The moment that is described.
 * @param {MemoryFrame} frame @param {number} time @param {number} bytes @returns {SVGElement}
 */
export function memoryCross(frame, time, bytes) {
  const [x, y] = [frame.x(time), frame.y(bytes)];
  const line = s("line", { x1: x, x2: x, y1: frame.top, y2: frame.bottom, class: "pf-cross" });
  return s("g", {}, line, s("circle", { cx: x, cy: y, r: 4.5, class: "pf-cross-dot" }));
}

/**
 * A box of the map as an option of the list that the map is for a screen reader.
 * @param {MapCell} cell @param {string} id @param {string} name @param {string} label @param
 * {string} tone the class of its colour
 * @returns {SVGElement}
 */
export function mapCell({ held, box }, id, name, label, tone) {
  const inner = { width: Math.max(0, box.width - 1), height: Math.max(0, box.height - 1) };
  return s(
    "g",
    {
      id,
      role: "option",
      "aria-label": label,
      "aria-selected": "false",
      class: `pf-map-cell pf-held-${held.kind}`,
    },
    s("rect", {
      x: box.x + 0.5,
      y: box.y + 0.5,
      ...inner,
      rx: 1.5,
      class: tone,
    }),
    ...cellText(box, name, readableBytes(held.bytes)),
  );
}

/**
 * As much as there is room for.
 * @param {import("./map.js").MapBox} box @param {string} name @param {string} bytes @returns
 * {SVGElement[]}
 */
function cellText(box, name, bytes) {
  const letters = Math.floor((box.width - 10) / (0.6 * MAP_LETTER));
  if (letters < 5 || box.height < MAP_LETTER + 6) return [];
  const first = s(
    "text",
    { x: box.x + 5, y: box.y + 14, class: "pf-map-name" },
    fittedName(name, letters),
  );
  const hasRoom = box.height > 34 && textWidth(bytes, MAP_LETTER) < box.width - 8;
  return hasRoom
    ? [first, s("text", { x: box.x + 5, y: box.y + 28, class: "pf-map-bytes" }, bytes)]
    : [first];
}

/**
 * In little room only the end of a name, which distinguishes layers.
 * @param {string} name @param {number} letters
 */
function fittedName(name, letters) {
  const all = [...name];
  return letters < 18 && all.length > letters
    ? `…${all.slice(1 - letters).join("")}`
    : withoutMiddle(name, letters);
}

/** The legend: the colour of each part. @param {Stacking} stacking */
export function memoryKeys({ names, classes }) {
  return names.map((name, part) =>
    h("span", { class: "pf-group-key" }, h("i", { class: classes[part] }), nameOrModel(name)),
  );
}
