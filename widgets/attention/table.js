/**
 * The cost of sparse attention as columns: stops from the largest share to the smallest, and
 * layers. No DOM.
 */

import { threeFigures } from "../shared/format.js";
import { heatScale, heatText } from "../shared/heat_scale.js";
import { float32s, float64s, int32s } from "../shared/unpack.js";

export const WIDEST_ERRORS = 1e3; // from the least that is shown to the most

/**
 * @typedef {{ index: number, keep: number, error: number, speedup: number,
 * value: number }} AttentionStop NaN is what was not measured
 * @typedef {{ layer: string, size: string, errors: number[], share: number, reason: string }}
 * AttendingLayer
 * @typedef {{ isKnown: boolean, title: string, kind: string, note: string, metric: string,
 * denseValue: number,
 *   stops: AttentionStop[], layers: AttendingLayer[], able: string[], scale:
 *   import("../shared/heat_scale.js").HeatScale | null }} AttentionTable
 */

/**
 * Unpack the trait `data`; `{}` is a cost that was not measured.
 * @param {any} data @returns {AttentionTable}
 */
export function unpackedAttention(data) {
  const isKnown = Array.isArray(data?.layer);
  const stops = isKnown ? attentionStops(data) : [];
  const layers = isKnown ? attendingLayers(data, stops.length) : [];
  return {
    isKnown,
    title: data?.title ?? "",
    kind: data?.kind ?? "",
    note: data?.note ?? "",
    metric: data?.metric ?? "",
    denseValue: data?.dense_value ?? NaN,
    stops,
    layers,
    able: layers.filter((layer) => !layer.reason).map((layer) => layer.layer),
    scale: scaleOfErrors(layers.flatMap((layer) => layer.errors)),
  };
}

/**
 * The colour scale of the errors, without negligible ones such as those with all keys kept.
 * @param {number[]} errors
 */
function scaleOfErrors(errors) {
  const most = Math.max(0, ...errors.filter((error) => error < Infinity));
  return heatScale(errors.filter((error) => error >= most / WIDEST_ERRORS));
}

/** @param {any} data @returns {AttentionStop[]} */
function attentionStops(data) {
  const [keeps, errors, ms, values] = [data.keeps, data.errors, data.latency_ms, data.values].map(
    float64s,
  );
  return Array.from(keeps, (keep, index) => {
    return {
      index,
      keep,
      error: errors[index] ?? NaN,
      speedup: (data.dense_ms ?? NaN) / (ms[index] ?? NaN),
      value: values[index] ?? NaN,
    };
  });
}

/** @param {any} data @param {number} count of stops @returns {AttendingLayer[]} */
function attendingLayers(data, count) {
  const [heads, queries, keys, isCausal] = [
    data.heads,
    data.queries,
    data.keys,
    data.is_causal,
  ].map(int32s);
  const [errors, share] = [float64s(data.layer_errors), float32s(data.share)];
  return /** @type {string[]} */ (data.layer).map((layer, row) => ({
    layer,
    size: sizeText(queries[row], keys[row], heads[row], Boolean(isCausal[row])),
    errors: [...errors.slice(row * count, (row + 1) * count)],
    share: share[row],
    reason: data.reason[row],
  }));
}

/**
 * 197, 197, 3 → "197 tokens × 3 heads".
 * @param {number} queries @param {number} keys @param {number} heads @param {boolean} isCausal
 */
function sizeText(queries, keys, heads, isCausal) {
  const tokens = queries === keys ? `${queries}` : `${queries} of ${keys}`;
  return `${tokens} × ${heads}${isCausal ? ", causal" : ""}`;
}

/** 0.25 → "25 %", 0.125 → "12.5 %". @param {number} keep */
export function keepText(keep) {
  return `${threeFigures(100 * keep)} %`;
}

/**
 * A speed-up as text, "1.42 ×", and its meaning.
 * @param {number} speedup @returns {{ value: string, word: string, isGood: boolean, isBad: boolean
 * }}
 */
export function paceOf(speedup) {
  if (!Number.isFinite(speedup))
    return { value: "–", word: "not timed", isGood: false, isBad: false };
  const [isGood, isBad] = [speedup > 1.005, speedup < 0.995];
  return {
    value: `${speedup.toFixed(2)} ×`,
    word: isGood ? "as fast" : isBad ? "as fast – slower" : "as fast – the same",
    isGood,
    isBad,
  };
}

/**
 * The figures of a stop: value, name, note and CSS class.
 * @param {AttentionTable} table @param {AttentionStop} stop @returns {{ value: string, name:
 * string, note: string, look: string }[]}
 */
export function stopFigures(table, stop) {
  const pace = paceOf(stop.speedup);
  const figures = [
    {
      value: heatText(stop.error),
      name: "error of the output",
      note: "relative to attention to all keys",
      look: "",
    },
    {
      value: pace.value,
      name: pace.word,
      note: Number.isFinite(stop.speedup) ? "timed in turn with all keys" : "",
      look: pace.isGood ? "pf-is-good" : pace.isBad ? "pf-is-bad" : "",
    },
  ];
  if (!table.metric || Number.isNaN(stop.value)) return figures;
  const before = Number.isNaN(table.denseValue)
    ? ""
    : `${table.denseValue.toFixed(4)} with all keys`;
  return [...figures, { value: stop.value.toFixed(4), name: table.metric, note: before, look: "" }];
}

/** A stop in a line of text. @param {AttentionTable} table @param {AttentionStop} stop */
export function stopWords(table, stop) {
  const figures = stopFigures(table, stop).map(({ value, name }) =>
    name === "error of the output" ? `output error ${value}` : `${value} ${name}`,
  );
  return [`${keepText(stop.keep)} of the keys kept`, ...figures].join(", ");
}
