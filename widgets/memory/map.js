/**
 * A treemap of the live memory at one moment: a part for each kind, in it a box for each layer. No
 * DOM.
 */

import { HELD_KINDS } from "./layout.js";

/**
 * @typedef {import("./layout.js").Held} Held
 * @typedef {{ x: number, y: number, width: number, height: number }} MapBox
 * @typedef {{ held: Held, box: MapBox }} MapCell
 * @typedef {{ kind: import("./layout.js").HeldKind, bytes: number, y: number, cells: MapCell[] }}
 * MapPart
 */

const MAP_HEADING = 18;
const LOWEST_PART = 22;

/**
 * The map: a part for each kind, as high as its share but never too low to be named, and in it a
 * box for each layer.
 * @param {Held[]} held @param {number} width @param {number} height
 * @returns {MapPart[]}
 */
export function memoryMap(held, width, height) {
  const parts = HELD_KINDS.map((kind) => ({
    kind,
    rows: held.filter((row) => row.kind === kind),
  })).filter((part) => part.rows.length);
  const sizes = parts.map((part) => part.rows.reduce((sum, row) => sum + row.bytes, 0));
  const heights = shares(sizes, height - MAP_HEADING * parts.length, LOWEST_PART);
  let y = 0;
  return parts.map(({ kind, rows }, index) => {
    const box = { x: 0, y: y + MAP_HEADING, width, height: heights[index] };
    const cells = squarified(
      rows.map((row) => row.bytes),
      box,
    ).map((place, row) => ({ held: rows[row], box: place }));
    const part = { kind, bytes: sizes[index], y, cells };
    y += MAP_HEADING + heights[index];
    return part;
  });
}

/**
 * A treemap: boxes whose surfaces are as the sizes, as near to squares as rows of them can be.
 * Sizes come largest first.
 * @param {number[]} sizes @param {MapBox} box @returns {MapBox[]}
 */
export function squarified(sizes, box) {
  const whole = sizes.reduce((sum, size) => sum + size, 0);
  if (!(whole > 0)) return [];
  const areas = sizes.map((size) => (size * box.width * box.height) / whole);
  /** @type {MapBox[]} */
  const placed = [];
  let rest = box;
  for (let first = 0; first < areas.length; ) {
    const short = Math.min(rest.width, rest.height);
    let count = 1;
    while (
      first + count < areas.length &&
      worst(areas, first, count + 1, short) <= worst(areas, first, count, short)
    )
      count++;
    rest = layRow(areas.slice(first, first + count), rest, placed);
    first += count;
  }
  return placed;
}

/**
 * LabelSpace in the ratio of the sizes, but none below the least.
 * @param {number[]} sizes @param {number} room @param {number} least @returns {number[]}
 */
export function shares(sizes, room, least) {
  const whole = sizes.reduce((sum, size) => sum + size, 0) || 1;
  const heights = sizes.map((size) => Math.max(least, (room * size) / whole));
  const spare = heights.map((size) => size - least);
  const over = heights.reduce((sum, size) => sum + size, 0) - room;
  const slack = spare.reduce((sum, size) => sum + size, 0) || 1;
  return heights.map((size, index) => size - (over * spare[index]) / slack);
}

/**
 * How far the worst box of a row is from a square.
 * @param {number[]} areas @param {number} first @param {number} count @param {number} side
 */
function worst(areas, first, count, side) {
  let sum = 0;
  for (let index = first; index < first + count; index++) sum += areas[index];
  const [largest, smallest] = [areas[first], areas[first + count - 1]];
  return Math.max((side * side * largest) / (sum * sum), (sum * sum) / (side * side * smallest));
}

/**
 * Place a row along the shorter side; returns the remaining box.
 * @param {number[]} areas @param {MapBox} box @param {MapBox[]} placed
 */
function layRow(areas, box, placed) {
  const isUpright = box.width >= box.height;
  const sum = areas.reduce((total, area) => total + area, 0);
  const deep = sum / (isUpright ? box.height : box.width) || 0;
  let along = 0;
  for (const area of areas) {
    const long = deep ? area / deep : 0;
    placed.push(
      isUpright
        ? { x: box.x, y: box.y + along, width: deep, height: long }
        : { x: box.x + along, y: box.y, width: long, height: deep },
    );
    along += long;
  }
  return isUpright
    ? { x: box.x + deep, y: box.y, width: Math.max(0, box.width - deep), height: box.height }
    : { x: box.x, y: box.y + deep, width: box.width, height: Math.max(0, box.height - deep) };
}
