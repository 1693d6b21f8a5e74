/**
 * The cost of sparse attention as columns: stops from the largest share to the smallest, and
 * layers. No DOM.
 */

import { threeFigures } from "../shared/format.js";
import { heatScale } from "../shared/heat_scale.js";
import { float32s, float64s, int32s } from "../shared/unpack.js";

const WIDEST_ERRORS = 1e3; // from the least that is shown to the most

/**
 * @typedef {{ index: number, keep: number, speedup: number }} AttentionStop NaN is what
 * was not timed
 * @typedef {{ layer: string, size: string, errors: number[], share: number, reason: string }}
 * AttendingLayer
 * @typedef {{ isKnown: boolean, kind: string,
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
    kind: data?.kind ?? "",
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
  const [keeps, ms] = [data.keeps, data.latency_ms].map(float64s);
  return Array.from(keeps, (keep, index) => {
    return {
      index,
      keep,
      speedup: (data.dense_ms ?? NaN) / (ms[index] ?? NaN),
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
