/**
 * The cost of a model with fewer channels: the arithmetic of `CutCost` in `records/cut_cost.py`,
 * step for step. No DOM.
 */

import { float64s, int32s } from "../shared/unpack.js";

/**
 * @typedef {{ fixed: number, terms: [number, number][] }} CutLength what stays in any case; for
 * each unit of a group so many places
 * @typedef {{ times: number, lengths: number[] }} CutWeight
 * @typedef {{ flops: number, ms: number, lengths: number[], stairs: [number, number][] }} CutLayer
 * @typedef {{ latencyMs: number, otherParameters: number, otherFlops: number, groups:
 * import("../coupling/table.js").ChannelGroup[],
 *   groupsMadeBy: Map<string, number[]>, lengths: CutLength[], weights: CutWeight[],
 *   layers: CutLayer[] }}
 *   CutCost
 * @typedef {{ parameters: number, flops: number, latencyMs: number }} Prediction
 * @typedef {[string, number][]} Removed layer, share of its channels; of two of a group the later
 * counts
 */

/**
 * Unpack what `packed_cut_cost` packed.
 * @param {any} data @param {import("../coupling/table.js").CouplingTable} coupling @returns
 * {CutCost}
 */
export function unpackedCutCost(data, coupling) {
  const [fixed, groups, places] = [int32s(data.fixed), ragged(data.groups), ragged(data.places)];
  const [times, flops, ms] = [data.times, data.flops, data.ms].map(float64s);
  return {
    latencyMs: data.latency_ms,
    otherParameters: data.other_parameters,
    otherFlops: data.other_flops,
    groups: coupling.groups,
    groupsMadeBy: coupling.groupsMadeBy,
    lengths: groups.map((terms, row) => ({
      fixed: fixed[row],
      terms: terms.map((group, at) => [group, places[row][at]]),
    })),
    weights: ragged(data.weights).map((lengths, row) => ({ times: times[row], lengths })),
    layers: ragged(data.layers).map((lengths, row) => ({
      flops: flops[row],
      ms: ms[row],
      lengths,
      stairs: data.stairs[row] ?? [],
    })),
  };
}

/** Every unit of every group. @param {CutCost} cost @returns {number[]} */
export function fullWidths(cost) {
  return cost.groups.map((group) => group.width);
}

/**
 * How many units of each group are kept.
 * @param {CutCost} cost @param {Removed} removed @returns {number[]}
 */
export function widthsAfter(cost, removed) {
  const kept = fullWidths(cost);
  for (const [layer, ratio] of removed) {
    for (const place of cost.groupsMadeBy.get(layer) ?? []) {
      const { width, pinned } = cost.groups[place];
      if (!pinned)
        kept[place] = Math.min(width, Math.max(1, Math.floor(width * (1 - ratio) + 0.5)));
    }
  }
  return kept;
}

/** @param {CutCost} cost @param {number[]} widths units of each group @returns {Prediction} */
export function predicted(cost, widths) {
  const [now, full] = [lengthsAt(cost, widths), lengthsAt(cost, fullWidths(cost))];
  const parameters = cost.weights.reduce(
    (sum, part) =>
      sum + part.times * part.lengths.reduce((product, place) => product * now[place], 1),
    0,
  );
  const flops = cost.layers.reduce(
    (sum, part) => sum + part.flops * shareOf(part.lengths, now, full),
    0,
  );
  const saved = cost.layers.reduce((sum, part) => sum + part.ms - layerMs(part, now, full), 0);
  return {
    parameters: cost.otherParameters + parameters,
    flops: cost.otherFlops + flops,
    latencyMs: Math.max(0, cost.latencyMs - saved),
  };
}

/** @param {CutCost} cost @param {number[]} widths */
function lengthsAt(cost, widths) {
  return cost.lengths.map(({ fixed, terms }) =>
    terms.reduce((sum, [group, places]) => sum + places * widths[group], fixed),
  );
}

/** @param {number[]} lengths @param {number[]} now @param {number[]} full */
function shareOf(lengths, now, full) {
  return lengths.reduce((share, place) => share * (now[place] / full[place]), 1);
}

/** @param {CutLayer} part @param {number[]} now @param {number[]} full */
function layerMs({ ms, lengths, stairs }, now, full) {
  if (!stairs.length || !lengths.length) return ms * shareOf(lengths, now, full);
  const [first, ...others] = lengths;
  const whole = climbed(stairs, full[first]);
  return ms * (whole > 0 ? climbed(stairs, now[first]) / whole : 1) * shareOf(others, now, full);
}

/**
 * The time at a length: on the straight line between its neighbours, beyond the ends that of the
 * end.
 * @param {[number, number][]} stairs @param {number} length
 */
function climbed(stairs, length) {
  const above = stairs.findIndex(([at]) => length <= at);
  if (above === 0) return stairs[0][1];
  if (above < 0) return stairs[stairs.length - 1][1];
  const [[lowAt, lowMs], [highAt, highMs]] = [stairs[above - 1], stairs[above]];
  return lowMs + ((highMs - lowMs) * (length - lowAt)) / (highAt - lowAt);
}

/**
 * Rows of different lengths.
 * @param {{ count: DataView, value: DataView }} data @returns {number[][]}
 */
function ragged(data) {
  const values = [...int32s(data.value)];
  let end = 0;
  return [...int32s(data.count)].map((count) => values.slice(end, (end += count)));
}
