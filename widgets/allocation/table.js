/** The points of an allocation packed by `packed_allocation`, and their texts. No DOM. */

import { readableBytes, threeFigures } from "../shared/format.js";
import { estimateText } from "../shared/heat_scale.js";
import { float32s } from "../shared/unpack.js";

/**
 * NaN is what is not known.
 * @typedef {{ x: number, latencyMs: number, baselineMs: number, sizeBytes: number, loss: number,
 * lossError: number, metric: number }} AchievedPoint
 * @typedef {{ index: number, name: string, around: string, counts: Record<string, number>,
 * isUniform: boolean, isPlanned: boolean,
 *   x: number, latencyMs: number, sizeBytes: number, loss: number, lossError: number, achieved:
 *   AchievedPoint | null }} AllocatedPoint
 * @typedef {{ isKnown: boolean, title: string, reason: string, notes: string[], unit: string, axis:
 * string,
 *   limits: Record<string, number>, baselineMs: number, baselineBytes: number, points:
 *   AllocatedPoint[] }} AllocationTable
 */

/**
 * Unpack the trait `data`; `{}` is an unknown allocation.
 * @param {any} data @returns {AllocationTable}
 */
export function unpackedAllocation(data) {
  const columns = Object.entries(data?.numbers ?? {}).map(([name, view]) => [
    name,
    float32s(/** @type {DataView} */ (view)),
  ]);
  const numbers = /** @type {Record<string, Float32Array>} */ (Object.fromEntries(columns));
  const names = /** @type {string[]} */ (data?.name ?? []);
  const [reason = "", ...notes] = data?.remarks ?? [];
  return {
    isKnown: names.length > 0,
    title: data?.title ?? "",
    reason,
    notes,
    unit: data?.unit ?? "loss",
    axis: data?.axis ?? "latency_ms",
    limits: data?.limits ?? {},
    baselineMs: data?.baseline_ms ?? NaN,
    baselineBytes: data?.baseline_bytes ?? NaN,
    points: names.map((name, index) => ({
      index,
      name,
      around: data.around[index],
      counts: data.counts[index],
      isUniform: index >= data.frontier,
      isPlanned: index === data.planned,
      ...pointNumbers(numbers, index),
      achieved: Number.isNaN(numbers.achieved_latency_ms[index])
        ? null
        : achievedNumbers(numbers, index),
    })),
  };
}

/** The name of the loss axis. @param {AllocationTable} table */
export function lostQuantity(table) {
  return table.unit === "loss" ? "rise of the loss" : "error of the output";
}

/**
 * An amount along the axis: "2.9 ms", "3.2 MB".
 * @param {AllocationTable} table @param {number} value
 */
export function amountText(table, value) {
  return table.axis === "latency_ms" ? `${threeFigures(value)} ms` : readableBytes(value);
}

/** The baseline's value on the axis. @param {AllocationTable} table */
export function baselineAmount(table) {
  return table.axis === "latency_ms" ? table.baselineMs : table.baselineBytes;
}

/** "12 in int8, 3 in fp32", and the format between them. @param {AllocatedPoint} point */
export function formatWords(point) {
  const counted = Object.entries(point.counts).map(([format, count]) => `${count} in ${format}`);
  return [...counted, point.around !== "fp32" && `${point.around} between them`]
    .filter(Boolean)
    .join(", ");
}

/**
 * The point with the ring and the details: the chosen one, else the best for what was asked.
 * @param {AllocationTable} table @param {number} chosen its index, -1 for none
 */
export function shownPoint({ points }, chosen) {
  return points[chosen] ?? points.find((point) => point.isPlanned);
}

/**
 * Whether a point is chosen, and whether it is the one that meets what was asked for.
 * @param {AllocatedPoint} point @param {boolean} isChosen
 */
export function standingWords(point, isChosen) {
  if (!point.isPlanned) return isChosen ? "chosen" : "";
  return isChosen ? "chosen, and best for what was asked" : "best for what was asked";
}

/** @param {number} count */
export function layerCount(count) {
  return `${count} ${count === 1 ? "layer" : "layers"}`;
}

/**
 * The figures of a point, each with its name.
 * @param {AllocationTable} table @param {AllocatedPoint} point @returns {[string, string][]}
 */
export function pointFigures(table, point) {
  const achieved = point.achieved;
  const reached = achieved ? achieved.baselineMs / achieved.latencyMs : NaN;
  /** @type {([string, string] | null | false)[]} */
  const figures = [
    [`${threeFigures(point.latencyMs)} ms`, "predicted"],
    achieved && [`${threeFigures(table.baselineMs / reached)} ms`, "achieved"],
    [speedText(table.baselineMs / point.latencyMs), "speed-up, predicted"],
    achieved && [speedText(reached), "speed-up, achieved"],
    [estimateText(point.loss, errorOf(point)), `${lostQuantity(table)}, predicted`],
    achieved &&
      !Number.isNaN(achieved.loss) && [
        estimateText(achieved.loss, errorOf(achieved)),
        `${lostQuantity(table)}, achieved`,
      ],
    [readableBytes(point.sizeBytes), `size, the baseline ${readableBytes(table.baselineBytes)}`],
    achieved &&
      !Number.isNaN(achieved.metric) && [
        String(Number(achieved.metric.toPrecision(4))),
        "metric, achieved",
      ],
  ];
  return figures.filter((figure) => figure !== null && figure !== false);
}

/** @param {number} ratio */
function speedText(ratio) {
  return `${ratio.toFixed(2)} ×`;
}

/** A zero error is not shown. @param {{ lossError: number }} estimate */
function errorOf(estimate) {
  return estimate.lossError > 0 ? estimate.lossError : NaN;
}

/** @param {Record<string, Float32Array>} numbers @param {number} index */
function pointNumbers(numbers, index) {
  return {
    x: numbers.x[index],
    latencyMs: numbers.latency_ms[index],
    sizeBytes: numbers.size_bytes[index],
    loss: numbers.loss[index],
    lossError: numbers.loss_error[index],
  };
}

/** @param {Record<string, Float32Array>} numbers @param {number} index @returns {AchievedPoint} */
function achievedNumbers(numbers, index) {
  return {
    x: numbers.achieved_x[index],
    latencyMs: numbers.achieved_latency_ms[index],
    baselineMs: numbers.achieved_baseline_ms[index],
    sizeBytes: numbers.achieved_size_bytes[index],
    loss: numbers.achieved_loss[index],
    lossError: numbers.achieved_loss_error[index],
    metric: numbers.achieved_metric[index],
  };
}
