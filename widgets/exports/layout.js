/** Targets of an export, what each wrote or why it refused, and the files. No DOM. */

import { readableBytes, threeDigits } from "../shared/format.js";

/**
 * @typedef {{ name: string, title: string, precisions: string[], obstacle: string,
 *   has_opset: boolean }} Target
 * @typedef {{ target: string, title: string, refused: string, path?: string, precision?: string,
 *   opset?: number | null, bytes?: number, error?: number | null, tolerance?: number | null,
 *   compared?: string[], not_verified?: string, latency_ms?: number | null,
 *   live_ms?: number | null, notes?: string[] }} Row
 * @typedef {{ name: string, bytes: number, sha256: string, can_download: boolean }} File
 * @typedef {{ sentence: string, layer: string, tolerance: number,
 *   probes: [string, number | null][] }} Difference
 * @typedef {{ title: string, sentence: string, folder: string, rows: Row[],
 *   difference: Difference | null, files: File[],
 *   file: { name: string, data: DataView, number: number } | null }} ExportData
 */

/** The file that the scripts of a folder run: it is always written. */
export const ALWAYS = "onnx";
export const PRECISIONS = ["", "fp32", "fp16", "bf16", "int8"];

/**
 * What can be said of a target before it is tried: '' if it can be chosen, else why not.
 * @param {Target} target @param {string} precision '' is the model's own
 */
export function obstacleOf(target, precision) {
  if (target.obstacle) return target.obstacle;
  if (!precision || target.precisions.includes(precision)) return "";
  return `not written in ${precision}: ${target.precisions.join(", ")}`;
}

/**
 * The targets to ask for: those chosen that can be had, and the one that always is.
 * @param {Target[]} targets @param {Set<string>} chosen @param {string} precision
 */
export function askedTargets(targets, chosen, precision) {
  return targets
    .filter(({ name }) => name === ALWAYS || chosen.has(name))
    .filter((target) => !obstacleOf(target, precision))
    .map(({ name }) => name);
}

/** An opset from a field: a number, null if it is empty, undefined if it is none. @param {string} text */
export function opsetOf(text) {
  const trimmed = text.trim();
  if (!trimmed) return null;
  return /^\d{1,3}$/.test(trimmed) && Number(trimmed) > 0 ? Number(trimmed) : undefined;
}

/** The verdict on a target: a word and its class. @param {Row} row @returns {[string, string]} */
export function verdictOf(row) {
  if (row.refused) return ["refused", "pf-is-bad"];
  if (row.not_verified || row.error === null || row.error === undefined)
    return ["converted, not run", "pf-is-open"];
  return ["same outputs", "pf-is-good"];
}

/** The error of a target beside what is allowed. @param {Row} row */
export function errorText({ error, tolerance }) {
  if (error === null || error === undefined) return "–";
  const allowed = tolerance ? ` of ${exponent(tolerance)}` : "";
  return `${error ? exponent(error) : "0"}${allowed}`;
}

/** How many times as fast as the live model. @param {Row} row */
export function speedText({ latency_ms: ms, live_ms: live }) {
  return ms && live ? `${threeDigits(live / ms)} ×` : "–";
}

/** What is written and noted of a target, in a line. @param {Row} row */
export function noteOf(row) {
  if (row.refused) return row.refused;
  const written = [row.precision, row.opset ? `opset ${row.opset}` : ""].filter(Boolean).join(", ");
  return [written, row.not_verified, ...(row.notes ?? [])].filter(Boolean).join(" · ");
}

/** @param {Row} row */
export function sizeText({ bytes }) {
  return bytes === undefined ? "–" : readableBytes(bytes);
}

/** The layers of the bisection as rows of text, in the order of their comparison. @param {Difference} difference */
export function probeRows({ probes, tolerance }) {
  return probes.map(([layer, error]) => ({
    layer,
    "differs by": error === null ? "not finite" : error ? exponent(error) : "0",
    "": error !== null && error <= tolerance ? "within" : "past",
  }));
}

/** 0.000123 → "1.2e-4". @param {number} value */
export function exponent(value) {
  return value.toExponential(1).replace("e+", "e");
}

/**
 * The address of a folder beside the notebook in the page's JupyterLab; '' elsewhere.
 * @param {string | undefined} notebook its path on the server @param {string | undefined} base of
 * the server's addresses @param {string} folder
 */
export function folderAddress(notebook, base, folder) {
  if (!notebook || !base || !folder || /^([/\\]|\w:)/.test(folder)) return "";
  const parts = [...notebook.split("/").slice(0, -1), ...folder.split("/")];
  return `${base}lab/tree/${parts.map(encodeURIComponent).join("/")}`;
}
