/**
 * The labels of a roofline and their positions: along the roofs, and beside the costliest dots. No
 * DOM.
 */

import { textWidth, withoutMiddle } from "../shared/lettering.js";
import { roofGflops, roofsOf } from "./layout.js";
import { clusters, leaderOf, LabelSpace } from "../shared/label_space.js";
import { linearScale, roundedText } from "../shared/scale.js";

/**
 * @typedef {import("./layout.js").Frame} Frame
 * @typedef {import("./layout.js").Ceiling} Ceiling
 * @typedef {import("./layout.js").Dot} Dot
 * @typedef {import("./layout.js").Roof} Roof
 * @typedef {import("../shared/label_space.js").Spot} Spot
 * @typedef {{ x: number, y: number, angle: number, length: number, text: string }} MemoryName
 * @typedef {{ text: string, box: import("../shared/label_space.js").Box, leader: [Spot, Spot] |
 * null }} Label
 */

export const LETTER = 11;
const WORTH_NAMING = 0.005; // of the time of all points
const LABELLED = 5;

/**
 * Names along the roofs, one for roofs that nearly coincide.
 * @param {Frame} frame @param {Ceiling} ceiling @returns {{ text: string, y: number, isMain:
 * boolean }[]}
 */
export function roofNames(frame, ceiling) {
  /** @type {{ roofs: Roof[], y: number }[]} */
  const groups = [];
  for (const roof of roofsOf(ceiling)) {
    const y = frame.y(roof.rate);
    const last = groups[groups.length - 1];
    if (last && y - last.y < LETTER + 3) last.roofs.push(roof);
    else groups.push({ roofs: [roof], y });
  }
  return groups.map(({ roofs, y }) => ({
    text: roofText(roofs, frame.isSmall),
    y,
    isMain: roofs.some((roof) => roof.name === "fp32"),
  }));
}

/**
 * The memory roof's label, parallel to the roof and over as few dots as possible; null if the roof
 * is too short.
 * @param {Frame} frame @param {Ceiling} ceiling @param {Dot[]} dots @returns {MemoryName | null}
 */
export function memoryName(frame, ceiling, dots) {
  const text = `${frame.isSmall ? "" : "memory "}${roundedText(ceiling.bandwidth_gbs)} GB/s`;
  const start = Math.max(frame.lowest, frame.floor / ceiling.bandwidth_gbs);
  const ridge = ceiling.fp32_gflops / ceiling.bandwidth_gbs;
  const [x, y] = [frame.x(start), frame.y(start * ceiling.bandwidth_gbs)];
  const [across, up] = [frame.x(ridge) - x, y - frame.y(ceiling.fp32_gflops)];
  const length = textWidth(text, LETTER);
  const rest = Math.hypot(across, up) - length - 24;
  if (rest < 0) return null;
  const angle = Math.atan2(up, across);
  const places = Array.from({ length: 13 }, (_, step) => {
    const along = 12 + (rest * step) / 12;
    return { x: x + Math.cos(angle) * along, y: y - Math.sin(angle) * along, angle, length, text };
  });
  return leastBy(places, (place) => dots.filter((dot) => isUnderName(place, dot)).length);
}

/** Whether a dot lies under a slanted name. @param {MemoryName} name @param {Dot} dot */
function isUnderName(name, dot) {
  const [across, up] = [dot.x - name.x, name.y - dot.y];
  const along = across * Math.cos(name.angle) + up * Math.sin(name.angle);
  const above = up * Math.cos(name.angle) - across * Math.sin(name.angle);
  return (
    along > -dot.radius &&
    along < name.length + dot.radius &&
    above > -dot.radius &&
    above < LETTER + 6 + dot.radius
  );
}

/**
 * The first of those with the lowest cost.
 * @template T @param {T[]} items @param {(item: T) => number} cost @returns {T}
 */
function leastBy(items, cost) {
  return items.reduce((best, item) => (cost(item) < cost(best) ? item : best));
}

/**
 * Labels of the costliest dots; dots close together share one.
 * @param {Dot[]} dots @param {Frame} frame @param {Ceiling} ceiling @returns {Label[]}
 */
export function dotLabels(dots, frame, ceiling) {
  if (frame.isSmall) return [];
  const inside = {
    x: frame.left + 2,
    y: frame.top,
    width: frame.right - frame.left - 4,
    height: frame.bottom - frame.top - 2,
  };
  const room = new LabelSpace(
    inside,
    takenBoxes(frame, ceiling, dots),
    roofSpots(frame, ceiling),
    dots,
  );
  const whole = dots.reduce((sum, dot) => sum + dot.ms, 0) || 1;
  const heads = clusters(dots, 12).filter(({ index }) => dots[index].ms >= WORTH_NAMING * whole);
  return heads.slice(0, LABELLED).flatMap(({ index, others }) => {
    const dot = dots[index];
    const name = withoutMiddle(dot.layer || "the model itself", 34);
    const text = others ? `${name} and ${others} near it` : name;
    const box = room.place(textWidth(text, LETTER) + 4, LETTER + 4, dot, dot.radius);
    return box ? [{ text, box, leader: leaderOf(box, dot, dot.radius) }] : [];
  });
}

/**
 * @param {Frame} frame @param {Ceiling} ceiling @param {Dot[]} dots @returns
 * {import("../shared/label_space.js").Box[]}
 */
function takenBoxes(frame, ceiling, dots) {
  const names = roofNames(frame, ceiling).map(({ text, y }) => {
    const width = textWidth(text, LETTER);
    return { x: frame.right - width, y: y - LETTER - 5, width, height: LETTER + 4 };
  });
  const along = memoryName(frame, ceiling, dots);
  if (!along) return names;
  const count = Math.ceil(along.length / 8);
  const pieces = Array.from({ length: count }, (_, step) => ({
    x: along.x + Math.cos(along.angle) * step * 8 - 12,
    y: along.y - Math.sin(along.angle) * step * 8 - 18,
    width: 14,
    height: 18,
  }));
  return [...names, ...pieces];
}

/**
 * @param {Frame} frame @param {Ceiling} ceiling @returns
 * {import("../shared/label_space.js").Spot[]}
 */
function roofSpots(frame, ceiling) {
  const across = linearScale(0, 80, Math.log(frame.lowest), Math.log(frame.highest));
  return Array.from({ length: 81 }, (_, step) => {
    const intensity = Math.exp(across(step));
    return { x: frame.x(intensity), y: frame.y(roofGflops(ceiling, intensity)) };
  });
}

/**
 * In small drawings only the format that the model computes in keeps its rate.
 * @param {Roof[]} roofs @param {boolean} isSmall
 */
function roofText(roofs, isSmall) {
  const isOneUnit = roofs.every((roof) => roof.unit === roofs[0].unit);
  const texts = roofs.map((roof, index) => {
    if (isSmall && roof.name !== "fp32") return roof.name;
    const isUnitTold = !isOneUnit || index === roofs.length - 1;
    return `${roof.name} ${roundedText(roof.rate)}${isUnitTold ? ` ${roof.unit}` : ""}`;
  });
  return texts.join(" · ");
}
