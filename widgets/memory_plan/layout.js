/** The buffers of a call in one arena: operators across, addresses up. No DOM. */

import { byteTicks } from "../memory/layout.js";
import { linearScale, linearTicks } from "../shared/scale.js";
import { float64s, int32s, spelledOut } from "../shared/unpack.js";

/**
 * @typedef {{ index: number, layer: string, operator: string, group: number, begin: number,
 *   end: number, size: number, offset: number }} Buffer
 * @typedef {{ title: string, sentence: string, note: string, workload: string, operators: number,
 *   held: number, packed: number, bound: number, fullest: number, groups: string[],
 *   buffers: Buffer[], alive: Float64Array }} Plan
 * @typedef {import("../memory/layout.js").MemoryFrame} PlanFrame
 * @typedef {{ name: string, bytes: number, kind: "held" | "packed" | "bound" }} Level
 */

/** Unpack the trait `data`; null if there is nothing to draw. @param {any} data @returns {Plan | null} */
export function unpackedPlan(data) {
  if (!Array.isArray(data?.groups)) return null;
  const [layer, operator] = [spelledOut(data.layer), spelledOut(data.operator)];
  const [begin, end, group] = [int32s(data.begin), int32s(data.end), int32s(data.group_of)];
  const [size, offset] = [float64s(data.size_bytes), float64s(data.offset_bytes)];
  const buffers = layer.map((name, index) => ({
    index,
    layer: name,
    operator: operator[index],
    group: group[index],
    begin: begin[index],
    end: end[index],
    size: size[index],
    offset: offset[index],
  }));
  return {
    title: data.title,
    sentence: data.sentence,
    note: data.note,
    workload: data.workload,
    operators: data.operators,
    held: data.held_bytes,
    packed: data.packed_bytes,
    bound: data.bound_bytes,
    fullest: data.fullest,
    groups: data.groups,
    buffers,
    alive: float64s(data.alive_bytes),
  };
}

/** @param {number} width @param {Plan} plan @returns {PlanFrame} */
export function planFrame(width, plan) {
  const height = width < 440 ? 220 : 300;
  const [left, right, top, bottom] = [62, width - 8, 18, height - 34];
  const most = 1.06 * Math.max(plan.held, plan.packed, 1);
  const operators = Math.max(plan.operators, 1);
  return {
    width,
    height,
    left,
    right,
    top,
    bottom,
    most,
    x: linearScale(0, operators, left, right),
    y: linearScale(0, most, bottom, top),
    ticksX: linearTicks(0, operators, width / 90).filter(Number.isInteger),
    ticksY: byteTicks(most, height / 60),
  };
}

/** The box of a buffer. @param {Buffer} buffer @param {PlanFrame} frame */
export function bufferBox({ begin, end, size, offset }, frame) {
  const [left, right] = [frame.x(begin), frame.x(end + 1)];
  const [upper, lower] = [frame.y(offset + size), frame.y(offset)];
  return { x: left, y: upper, width: right - left, height: lower - upper };
}

/** The buffer under a spot; null if it is free there. @param {Plan} plan @param {PlanFrame} frame @param {number} x @param {number} y */
export function bufferAt(plan, frame, x, y) {
  const isIn = (/** @type {Buffer} */ buffer) => {
    const box = bufferBox(buffer, frame);
    return x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height;
  };
  return plan.buffers.find(isIn) ?? null;
}

/** The levels to draw, equal ones as one. @param {Plan} plan @returns {Level[]} */
export function levelsOf(plan) {
  const levels = /** @type {Level[]} */ ([
    { name: "torch held", bytes: plan.held, kind: "held" },
    { name: "arena", bytes: plan.packed, kind: "packed" },
    { name: "least", bytes: plan.bound, kind: "bound" },
  ]);
  return levels.reduce((kept, level) => {
    const same = kept.find((other) => other.bytes === level.bytes);
    if (same) same.name = `${same.name} = ${level.name}`;
    else kept.push({ ...level });
    return kept;
  }, /** @type {Level[]} */ ([]));
}

/** Buffers in the order in which keys move through them: by time, then by address. @param {Plan} plan */
export function bufferOrder(plan) {
  return [...plan.buffers].sort(
    (first, second) => first.begin - second.begin || first.offset - second.offset,
  );
}
