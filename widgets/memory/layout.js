/** The geometry of a call's memory: live bytes over time, stacked by groups of layers. No DOM. */

import { linearScale, linearTicks } from "../shared/scale.js";

/**
 * Events in order of time: bytes given out, or less than 0 taken back.
 * @typedef {{
 *   title: string, sentence: string, note: string, workload: string, duration: number,
 *   layers: string[], weights: number[], groups: string[], groupOf: number[],
 *   time: number[], change: number[], layerOf: number[], isWorkspace: boolean[], alive: number[],
 *   peak: number,
 * }} Timeline
 * @typedef {"weights" | "activations" | "workspace"} HeldKind
 * @typedef {{ layer: string, kind: HeldKind, bytes: number, group: number }} Held
 * @typedef {{ names: string[], classes: string[], base: number[], partOf: (event: number) => number
 * }} Stacking
 * @typedef {{ width: number, height: number, left: number, right: number, top: number, bottom:
 * number, most: number,
 *   x: import("../shared/scale.js").Scale, y: import("../shared/scale.js").Scale, ticksX: number[],
 *   ticksY: number[] }} MemoryFrame
 */

export const HELD_KINDS = /** @type {HeldKind[]} */ (["weights", "activations", "workspace"]);
const TICK_SIZES = [1, 1e3, 1e6, 1e9, 1e12];

/**
 * Unpack the trait `data`; null if there is nothing to draw.
 * @param {any} data @returns {Timeline | null}
 */
export function unpackedTimeline(data) {
  if (!Array.isArray(data?.layers)) return null;
  const change = numbersOf(data.change_bytes, 8, (view, at) => view.getFloat64(at, true));
  const alive = runningSum(change);
  return {
    title: data.title,
    sentence: data.sentence,
    note: data.note,
    workload: data.workload,
    duration: data.duration_ms,
    layers: data.layers,
    weights: numbersOf(data.weights_bytes, 8, (view, at) => view.getFloat64(at, true)),
    groups: data.groups,
    groupOf: numbersOf(data.group_of, 2, (view, at) => view.getUint16(at, true)),
    time: numbersOf(data.time_ms, 8, (view, at) => view.getFloat64(at, true)),
    change,
    layerOf: numbersOf(data.layer_index, 2, (view, at) => view.getUint16(at, true)),
    isWorkspace: numbersOf(data.is_workspace, 1, (view, at) => view.getUint8(at)).map(Boolean),
    alive,
    peak: alive.reduce(
      (best, bytes, event) => (best < 0 || bytes > alive[best] ? event : best),
      -1,
    ),
  };
}

/**
 * The live memory after an event, including weights, the largest first.
 * @param {Timeline} timeline @param {number} event @returns {Held[]}
 */
export function heldAt(timeline, event) {
  const { layers, groupOf } = timeline;
  const weights = timeline.weights.map((bytes, index) => ({
    layer: layers[index],
    kind: HELD_KINDS[0],
    bytes,
    group: groupOf[index],
  }));
  /** @type {Map<string, Held>} */
  const own = new Map();
  for (let place = 0; place <= event; place++) {
    const index = timeline.layerOf[place];
    const kind = timeline.isWorkspace[place] ? "workspace" : "activations";
    const held = own.get(`${kind} ${index}`) ?? {
      layer: layers[index],
      kind,
      bytes: 0,
      group: groupOf[index],
    };
    held.bytes += timeline.change[place];
    own.set(`${kind} ${index}`, held);
  }
  return [...weights, ...own.values()]
    .filter((held) => held.bytes > 0)
    .sort((first, second) => second.bytes - first.bytes);
}

/**
 * The events to draw, at most one per pixel: the one with the most live bytes.
 * @param {Timeline} timeline @param {number} pixels @returns {number[]}
 */
export function drawnEvents(timeline, pixels) {
  /** @type {Map<number, number>} */
  const kept = new Map();
  timeline.time.forEach((time, event) => {
    const pixel = Math.floor((time / (timeline.duration || 1)) * pixels);
    const other = kept.get(pixel);
    if (other === undefined || timeline.alive[event] > timeline.alive[other])
      kept.set(pixel, event);
  });
  return [...kept.values()];
}

/**
 * The parts that the live bytes are stacked by: groups of layers, or categories, which include the
 * weights.
 * @param {Timeline} timeline @param {"layer" | "category"} mode @returns {Stacking}
 */
export function stackingOf(timeline, mode) {
  if (mode === "category")
    return {
      names: HELD_KINDS,
      classes: HELD_KINDS.map((kind) => `pf-category-${kind}`),
      base: [timeline.weights.reduce((sum, bytes) => sum + bytes, 0), 0, 0],
      partOf: (event) => (timeline.isWorkspace[event] ? 2 : 1),
    };
  return {
    names: timeline.groups,
    classes: timeline.groups.map((_, group) => `pf-group-${group}`),
    base: timeline.groups.map(() => 0),
    partOf: (event) => timeline.groupOf[timeline.layerOf[event]],
  };
}

/** The bytes that a stacking adds to those of the call. @param {Stacking} stacking */
export function baseOf(stacking) {
  return stacking.base.reduce((sum, bytes) => sum + bytes, 0);
}

/**
 * For each of some events, in order, the bytes that each part has alive.
 * @param {Timeline} timeline @param {number[]} events @param {Stacking} stacking
 * @returns {number[][]}
 */
export function aliveByPart(timeline, events, stacking) {
  const alive = [...stacking.base];
  let next = 0;
  return events.map((event) => {
    for (; next <= event; next++) alive[stacking.partOf(next)] += timeline.change[next];
    return [...alive];
  });
}

/**
 * For each of some events the bytes of a layer and of those under it.
 * @param {Timeline} timeline @param {number[]} events @param {string} layer @returns {number[]}
 */
export function aliveOfLayer(timeline, events, layer) {
  const isIts = timeline.layers.map((name) => name === layer || name.startsWith(`${layer}.`));
  let [alive, next] = [0, 0];
  return events.map((event) => {
    for (; next <= event; next++)
      alive += isIts[timeline.layerOf[next]] ? timeline.change[next] : 0;
    return alive;
  });
}

/**
 * The event that holds at a moment: the last before it.
 * @param {number[]} times @param {number} moment
 */
export function eventAt(times, moment) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= moment) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/**
 * @param {number} width @param {number} duration @param {number} most bytes at the upper edge
 * @returns {MemoryFrame}
 */
export function memoryFrame(width, duration, most) {
  const height = width < 440 ? 220 : 300;
  const [left, right, top, bottom] = [62, width - 8, 30, height - 34];
  return {
    width,
    height,
    left,
    right,
    top,
    bottom,
    most,
    x: linearScale(0, duration || 1, left, right),
    y: linearScale(0, most, bottom, top),
    ticksX: linearTicks(0, duration || 1, width / 90),
    ticksY: byteTicks(most, height / 60),
  };
}

/**
 * Stacked step areas, one per group: values hold until the next event.
 * @param {number[]} times @param {number[][]} stacks @param {number} end @param {MemoryFrame} frame
 * @returns {string[]}
 */
export function stackedPaths(times, stacks, end, frame) {
  const count = stacks[0]?.length ?? 0;
  const sums = stacks.map((stack) => runningSum(stack));
  return Array.from({ length: count }, (_, group) => {
    const upper = sums.map((sum) => sum[group]);
    if (!stacks.some((stack) => stack[group] > 0)) return "";
    const lower = sums.map((sum) => (group ? sum[group - 1] : 0));
    const back = stepSpots(times, lower, end, frame).reverse();
    return `M${[...stepSpots(times, upper, end, frame), ...back].join("L")}Z`;
  });
}

/**
 * @param {number[]} times @param {number[]} values @param {number} end @param {MemoryFrame} frame
 */
export function stepPath(times, values, end, frame) {
  return values.length ? `M${stepSpots(times, values, end, frame).join("L")}` : "";
}

/**
 * @param {number} most @param {number} count @returns {number[]} round in the unit that they are
 * read in
 */
export function byteTicks(most, count) {
  const unit = TICK_SIZES.findLast((size) => size <= most) ?? 1;
  return linearTicks(0, most / unit, count).map((value) => value * unit);
}

/** @param {number[]} values @returns {number[]} */
function runningSum(values) {
  let sum = 0;
  return values.map((value) => (sum += value));
}

/**
 * @param {DataView} view @param {number} size @param {(view: DataView, at: number) => number} read
 * @returns {number[]}
 */
function numbersOf(view, size, read) {
  return Array.from({ length: view.byteLength / size }, (_, index) => read(view, index * size));
}

/**
 * @param {number[]} times @param {number[]} values @param {number} end @param {MemoryFrame} frame
 * @returns {string[]}
 */
function stepSpots(times, values, end, frame) {
  return values.flatMap((value, index) => {
    const y = frame.y(value).toFixed(1);
    return [
      `${frame.x(times[index]).toFixed(1)} ${y}`,
      `${frame.x(times[index + 1] ?? end).toFixed(1)} ${y}`,
    ];
  });
}
