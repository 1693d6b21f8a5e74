/**
 * The geometry of a frontier: time or bytes on x, losses on a logarithmic y, and a band for losses
 * of zero or less. No DOM.
 */

import { amountText, baselineAmount } from "./table.js";
import { heatScale, heatText } from "../shared/heat_scale.js";
import { textWidth } from "../shared/lettering.js";
import { clamped, leaderOf, LabelSpace } from "../shared/label_space.js";
import { linearScale, linearTicks, logScale, logTicks } from "../shared/scale.js";

/**
 * @typedef {import("./table.js").AllocationTable} AllocationTable
 * @typedef {{ x: number, text: string, start: number, width: number }} LineName
 * @typedef {{ width: number, height: number, left: number, right: number, top: number, bottom:
 * number, floor: number, floorY: number,
 *   bandText: string, x: import("../shared/scale.js").Scale, y: import("../shared/scale.js").Scale,
 *   ticksX: number[], ticksY: number[],
 *   baselineX: number, limitX: number | null, limitY: number | null }} AllocationFrame
 * @typedef {{ index: number, x: number, y: number, radius: number, isUniform: boolean, isAchieved:
 * boolean }} AllocationDot
 * @typedef {{ text: string, box: import("../shared/label_space.js").Box, leader:
 * [import("../shared/label_space.js").Spot, import("../shared/label_space.js").Spot] | null }}
 * UniformName
 */

const ALLOCATION_MARGIN = { left: 56, right: 16, top: 24, bottom: 38 };
const BAND = 30; // for losses of zero or less
const CARD = 330; // the room that a card wants
const RAISED = 90;
const SAME = 1 - 1e-6; // float32 keeps seven figures
export const NAME_SIZE = 11;

/** @param {number} width @param {AllocationTable} table @returns {AllocationFrame} */
export function allocationFrame(width, table) {
  const height = clamped(Math.round(width * 0.4), 250, 400);
  const [left, right, top, bottom] = [
    ALLOCATION_MARGIN.left,
    width - ALLOCATION_MARGIN.right,
    ALLOCATION_MARGIN.top,
    height - ALLOCATION_MARGIN.bottom,
  ];
  const floorY = bottom - BAND;
  const losses = lossesOf(table);
  const { floor, top: most } = heatScale(losses) ?? { floor: 1e-3, top: 1 };
  const room = (most / floor) ** 0.04; // marks at the ends stay whole
  const up = logScale(floor / room, most * room, floorY, top);
  const [low, high] = reachAcross(table);
  const x = linearScale(low, high, left, right);
  const [limit, lossLimit] = [table.limits[table.axis], table.limits.loss];
  return {
    width,
    height,
    left,
    right,
    top,
    bottom,
    floor,
    floorY,
    x,
    bandText: losses.some((loss) => loss > 0 && loss < floor * SAME)
      ? `< ${heatText(floor)}`
      : "≤ 0",
    y: (loss) => (loss >= floor * SAME ? up(loss) : floorY + BAND / 2),
    ticksX: linearTicks(low, high, (right - left) / 90),
    ticksY: logTicks(floor, most, height / 50),
    baselineX: x(baselineAmount(table)),
    limitX: limit >= low && limit <= high ? x(limit) : null,
    limitY:
      lossLimit >= floor
        ? lossLimit <= most * room
          ? up(lossLimit)
          : null
        : lossLimit >= 0
          ? floorY
          : null,
  };
}

/**
 * The predicted dots in the order of the points, then the achieved ones.
 * @param {AllocationTable} table @param {AllocationFrame} frame @returns {AllocationDot[]}
 */
export function allocationDots(table, frame) {
  const predicted = table.points.map(({ index, isUniform, x, loss }) => ({
    index,
    isUniform,
    isAchieved: false,
    x: frame.x(x),
    y: frame.y(loss),
    radius: isUniform ? 4.6 : 4,
  }));
  const achieved = table.points.flatMap(({ index, isUniform, achieved: spot }) =>
    spot && Number.isFinite(spot.x) && Number.isFinite(spot.loss)
      ? [
          {
            index,
            isUniform,
            isAchieved: true,
            x: frame.x(spot.x),
            y: frame.y(spot.loss),
            radius: isUniform ? 4.6 : 4,
          },
        ]
      : [],
  );
  return [...predicted, ...achieved];
}

/** Across until there is something better, then down to it. @param {AllocationDot[]} dots */
export function steppedPath(dots) {
  const [first, ...rest] = dots.filter((dot) => !dot.isUniform && !dot.isAchieved);
  return [
    `M${first.x.toFixed(1)} ${first.y.toFixed(1)}`,
    ...rest.map((dot) => `H${dot.x.toFixed(1)}V${dot.y.toFixed(1)}`),
  ].join("");
}

/**
 * The position of a point's card: beside both its marks, and raised, since the frontier continues
 * below and to the right.
 * @param {AllocationDot[]} dots @param {number} index @param {number} width of the drawing
 */
export function cardSpot(dots, index, width) {
  const own = dots.filter((dot) => dot.index === index).map((dot) => dot.x);
  const right = Math.max(...own);
  return { x: right + CARD <= width ? right : Math.min(...own), y: dots[index].y - RAISED };
}

/**
 * The names over the drawing's upright lines, apart from each other.
 * @param {AllocationTable} table @param {AllocationFrame} frame @returns {LineName[]}
 */
export function lineNames(table, frame) {
  const known = [
    { x: frame.baselineX, text: `as it is ${amountText(table, baselineAmount(table))}` },
  ];
  if (frame.limitX !== null)
    known.push({ x: frame.limitX, text: `at most ${amountText(table, table.limits[table.axis])}` });
  const names = known
    .sort((first, second) => first.x - second.x)
    .map((first) => centred(first, frame));
  const [first, second] = names;
  const shared = second ? first.start + first.width + 12 - second.start : 0;
  if (shared > 0) {
    first.start = clamped(
      first.start - shared / 2,
      frame.left,
      frame.width - first.width - second.width - 12,
    );
    second.start = first.start + first.width + 12;
  }
  return names;
}

/**
 * The names of the uniform choices, each beside its mark.
 * @param {AllocationTable} table @param {AllocationFrame} frame @param {AllocationDot[]} dots
 * @returns {UniformName[]}
 */
export function uniformNames(table, frame, dots) {
  const inside = {
    x: frame.left + 2,
    y: frame.top + 2,
    width: frame.right - frame.left - 4,
    height: frame.bottom - frame.top - 4,
  };
  const line = dots.filter((dot) => !dot.isUniform && !dot.isAchieved);
  const upright = [frame.baselineX, frame.limitX].filter((x) => x !== null);
  const spots = [
    ...frontierSpots(line),
    ...upright.flatMap((x) => uprightSpots(x, frame)),
    ...levelSpots(frame),
  ];
  const room = new LabelSpace(inside, lossLimitBox(table, frame), spots, dots);
  return dots
    .filter((dot) => dot.isUniform && !dot.isAchieved)
    .flatMap((dot) => {
      const text = table.points[dot.index].name;
      const box = room.place(textWidth(text, NAME_SIZE) + 2, NAME_SIZE + 4, dot, dot.radius);
      return box ? [{ text, box, leader: leaderOf(box, dot, dot.radius) }] : [];
    });
}

/** @param {AllocationTable} table */
export function lossLimitText(table) {
  return `at most ${heatText(table.limits.loss)}`;
}

/**
 * The box of the label of the loss limit, above its line at the right.
 * @param {AllocationTable} table @param {AllocationFrame} frame
 */
function lossLimitBox(table, frame) {
  if (frame.limitY === null) return [];
  const width = textWidth(lossLimitText(table), NAME_SIZE);
  return [{ x: frame.right - 4 - width, y: frame.limitY - 17, width, height: 16 }];
}

/** @param {AllocationTable} table @returns {number[]} */
function lossesOf(table) {
  const known = table.points.flatMap((point) =>
    point.achieved ? [point.loss, point.achieved.loss] : [point.loss],
  );
  return known.filter((loss) => Number.isFinite(loss));
}

/**
 * The range of the axis with room for marks; it includes a limit that is near.
 * @param {AllocationTable} table @returns {[number, number]}
 */
function reachAcross(table) {
  const known = table.points
    .flatMap((point) => [point.x, point.achieved?.x ?? NaN])
    .concat(baselineAmount(table));
  const finite = known.filter((value) => Number.isFinite(value));
  const [least, most] = [Math.min(...finite), Math.max(...finite)];
  const span = most - least || 0.2 * most || 1;
  const limit = table.limits[table.axis];
  const isNear = limit >= least - span / 4 && limit <= most + span / 4;
  const [low, high] = isNear ? [Math.min(least, limit), Math.max(most, limit)] : [least, most];
  return [low - 0.06 * span, high + 0.06 * span];
}

/** @param {{ x: number, text: string }} line @param {AllocationFrame} frame @returns {LineName} */
function centred({ x, text }, frame) {
  const width = textWidth(text, NAME_SIZE);
  return { x, text, width, start: clamped(x - width / 2, frame.left, frame.width - width) };
}

/** @param {AllocationDot[]} line */
function frontierSpots(line) {
  return line.slice(1).flatMap((dot, place) => [
    ...Array.from({ length: 12 }, (_, step) => ({
      x: line[place].x + ((dot.x - line[place].x) * step) / 12,
      y: line[place].y,
    })),
    ...Array.from({ length: 6 }, (_, step) => ({
      x: dot.x,
      y: line[place].y + ((dot.y - line[place].y) * step) / 6,
    })),
  ]);
}

/** @param {number} x @param {AllocationFrame} frame */
function uprightSpots(x, frame) {
  const step = 12;
  return Array.from({ length: Math.floor((frame.bottom - frame.top) / step) }, (_, place) => ({
    x,
    y: frame.top + place * step,
  }));
}

/** @param {AllocationFrame} frame */
function levelSpots({ limitY, left, right }) {
  return limitY === null
    ? []
    : Array.from({ length: 81 }, (_, place) => ({
        x: left + ((right - left) * place) / 80,
        y: limitY,
      }));
}
