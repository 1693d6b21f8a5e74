/** The columns packed by `packed_sensitivity`, and the texts of a cell. No DOM. */

import { readableCount } from "../shared/format.js";
import { estimateText, heatScale } from "../shared/heat_scale.js";
import { flatTree } from "../shared/tree.js";
import { float32s, spelledOut } from "../shared/unpack.js";

/**
 * @typedef {{ value: Float32Array, error: Float32Array }} Estimates
 * @typedef {import("../shared/arrangement.js").GridTable & {
 *   isKnown: boolean, title: string, machine: string, unit: string, method: string, examples:
 *   number, isInterrupted: boolean,
 *   notes: string[], formats: string[], choices: string[],
 *   note: string[], parameters: Float32Array,
 *   predicted: Record<string, Estimates>, measured: Record<string, Estimates>, scale:
 *   import("../shared/heat_scale.js").HeatScale | null,
 * }} SensitivityTable
 */

/**
 * Unpack the trait `data`; `{}` is an unknown sensitivity.
 * @param {any} data @returns {SensitivityTable}
 */
export function unpackedSensitivity(data) {
  const layers = /** @type {string[]} */ (data?.layer ?? []);
  const predicted = estimatesOf(data?.predicted);
  return {
    isKnown: Array.isArray(data?.layer),
    title: data?.title ?? "",
    machine: data?.machine ?? "",
    unit: data?.unit ?? "loss",
    method: data?.method ?? "",
    examples: data?.examples ?? 0,
    isInterrupted: Boolean(data?.is_interrupted),
    notes: data?.notes ?? [],
    formats: data?.formats ?? [],
    choices: data?.choices ?? [],
    layers,
    place: new Map(layers.map((layer, row) => [layer, row])),
    ...flatTree(layers.length),
    kind: spelledOut(data?.kind),
    note: spelledOut(data?.note),
    parameters: data?.parameters ? float32s(data.parameters) : new Float32Array(),
    predicted,
    measured: estimatesOf(data?.measured),
    scale: heatScale(Object.values(predicted).flatMap((scores) => [...scores.value])),
  };
}

/**
 * The predicted cost of a layer in a format; NaN if unknown.
 * @param {SensitivityTable} table @param {number} row @param {string} format
 */
export function predictedAt(table, row, format) {
  return table.predicted[format]?.value[row] ?? NaN;
}

/**
 * Whether a cost cannot be told from 0: it is within its own standard error.
 * @param {SensitivityTable} table @param {number} row @param {string} format
 */
export function isUntold(table, row, format) {
  return Math.abs(predictedAt(table, row, format)) <= (table.predicted[format]?.error[row] ?? NaN);
}

/**
 * The measured cost of a layer in a format.
 * @param {SensitivityTable} table @param {number} row @param {string} format
 */
export function measuredAt(table, row, format) {
  return table.measured[format]?.value[row] ?? NaN;
}

/** The name of the quantity. @param {SensitivityTable} table */
export function quantityOf(table) {
  return table.unit === "loss" ? "rise of the loss" : "relative error of the output";
}

/** How it was measured, in a line. @param {SensitivityTable} table */
export function sensitivityLine(table) {
  const how =
    table.method === "ablation" ? "measured layer by layer" : `predicted by ${table.method}`;
  const parts = [`${quantityOf(table)}, ${how}`, `${table.examples} examples`, table.machine];
  return [
    ...parts,
    table.isInterrupted && "stopped early: what was found until then",
    ...table.notes,
  ]
    .filter(Boolean)
    .join(" · ");
}

/**
 * The figures of a cell, each with its name; a sentence has no figure.
 * @param {SensitivityTable} table @param {number} row @param {string} format @returns {[string,
 * string][]}
 */
export function cellFigures(table, row, format) {
  const [value, error] = [
    predictedAt(table, row, format),
    table.predicted[format]?.error[row] ?? NaN,
  ];
  const [measured, spread] = [
    measuredAt(table, row, format),
    table.measured[format]?.error[row] ?? NaN,
  ];
  const isMeasuredApart = !Number.isNaN(measured) && table.method !== "ablation";
  /** @type {([string, string] | false)[]} */
  const figures = [
    !Number.isNaN(value) && [
      estimateText(value, error),
      table.method === "ablation" ? "measured" : "predicted",
    ],
    isMeasuredApart && [estimateText(measured, spread), "measured"],
    [readableCount(table.parameters[row]), "parameters"],
  ];
  return figures.filter((figure) => figure !== false);
}

/**
 * A remark on a cell's number, or "".
 * @param {SensitivityTable} table @param {number} row @param {string} format
 */
export function cellRemark(table, row, format) {
  const [value, error] = [
    predictedAt(table, row, format),
    table.predicted[format]?.error[row] ?? NaN,
  ];
  if (Number.isNaN(value)) return table.note[row] || "not looked at in this format";
  if (value < 0 && table.unit === "loss")
    return `the loss falls${Math.abs(value) <= error ? ", within the standard error" : ""}`;
  if (table.scale && value < table.scale.floor)
    return `below the scale, which begins at ${estimateText(table.scale.floor, NaN)}`;
  return value <= error ? "within its standard error of 0" : "";
}

/**
 * @param {Record<string, { value: DataView, error: DataView }> | undefined} packed @returns
 * {Record<string, Estimates>}
 */
function estimatesOf(packed) {
  const formats = Object.entries(packed ?? {});
  return Object.fromEntries(
    formats.map(([name, scores]) => [
      name,
      { value: float32s(scores.value), error: float32s(scores.error) },
    ]),
  );
}
