/** The geometry of a training's charts: curves over steps, and the gradient's sizes. No DOM. */

import { linearScale, linearTicks, logScale, logTicks } from "../shared/scale.js";
import { float32s, int32s } from "../shared/unpack.js";

/**
 * @typedef {{ name: string, values: Float32Array, isLog: boolean }} Curve
 * @typedef {{ step: number, what: string }} Switch
 * @typedef {{ title: string, facts: { name: string, value: string }[], notes: string[], precision:
 * string, isRunning: boolean, done: number, steps: number, every: number, curves: Curve[], lower:
 * number[][], skipped: number[], events: Switch[], epochs: Record<string, string>[], layers:
 * string[], dead: string[], rangeSteps: Int32Array, ranges: Int32Array, bins: number,
 * lowestExponent: number, binWidth: number, ranksTitle: string, ranks: Rank[] }} Training
 * @typedef {{ cells: Record<string, string>, computed: number, waited: number }} Rank
 * @typedef {{ curve: Curve, left: number, right: number, top: number, bottom: number, x:
 * import("../shared/scale.js").Scale, y: import("../shared/scale.js").Scale, ticks: number[] }}
 * Band
 * @typedef {{ x: number, y: number, width: number, height: number, share: number, bin: number,
 * step: number, count: number }} Cell
 */

const LEFT = 64;
const RIGHT = 14;
const TALL = 170;
const LOW = 84;
const GAP = 26;
export const HEAT_HEIGHT = 132;
export const BAR_WIDTH = 180;
export const BAR_HEIGHT = 10;

/** Unpack the trait `data`; null where no step was done. @param {any} data @returns {Training | null} */
export function unpackedTraining(data) {
  if (!data?.columns || !data.done) return null;
  const columns = Object.fromEntries(
    Object.entries(data.columns).map(([name, view]) => [
      name,
      float32s(/** @type {DataView} */ (view)),
    ]),
  );
  const rangeSteps = int32s(data.range_steps);
  const ranges = int32s(data.ranges);
  const cells = rangeSteps.length * data.layers.length;
  return {
    title: data.title,
    facts: data.facts,
    notes: data.notes,
    precision: data.precision,
    isRunning: data.is_running,
    done: data.done,
    steps: data.steps,
    every: data.every,
    curves: curvesOf(columns),
    lower: data.lower,
    skipped: data.skipped,
    events: data.events,
    epochs: data.epochs,
    layers: data.layers,
    dead: data.dead,
    rangeSteps,
    ranges,
    bins: cells ? ranges.length / cells : 0,
    lowestExponent: data.lowest_exponent,
    binWidth: data.bin_width,
    ranksTitle: data.ranks_title,
    ranks: data.ranks,
  };
}

/**
 * How wide each rank's bar is: what it computes and what it waits for in a step, on one scale.
 * @param {Rank[]} ranks @returns {{ computed: number, waited: number }[]}
 */
export function barsOf(ranks) {
  const longest = Math.max(...ranks.map(({ computed, waited }) => computed + waited)) || 1;
  return ranks.map(({ computed, waited }) => ({
    computed: (BAR_WIDTH * computed) / longest,
    waited: (BAR_WIDTH * waited) / longest,
  }));
}

/** @param {Record<string, Float32Array>} columns @returns {Curve[]} */
function curvesOf(columns) {
  const curves = [
    { name: "loss", values: columns.loss, isLog: false },
    { name: "learning rate", values: columns.rate, isLog: false },
    { name: "gradient norm", values: columns.norm, isLog: true },
  ];
  if (columns.scale.some((scale) => scale !== 1))
    curves.push({ name: "loss scale", values: columns.scale, isLog: true });
  curves.push({ name: "ms a step", values: columns.ms, isLog: true });
  return curves;
}

/** The bands of the curves, one below the other. @param {number} width @param {Training} training */
export function bandsOf(width, training) {
  const right = Math.max(LEFT + 40, width - RIGHT);
  const last = training.isRunning ? Math.max(training.done, training.steps) : training.done;
  const x = linearScale(0, Math.max(1, last - 1), LEFT, right);
  let top = GAP;
  const bands = training.curves.map((curve, index) => {
    const bottom = top + (index ? LOW : TALL) - GAP;
    const band = bandOf(curve, x, { left: LEFT, right, top, bottom });
    top = bottom + GAP;
    return band;
  });
  return { height: top - GAP + 20, bands, x, left: LEFT, right };
}

/**
 * @param {Curve} curve @param {import("../shared/scale.js").Scale} x @param {{left: number, right:
 * number, top: number, bottom: number}} edges @returns {Band}
 */
function bandOf(curve, x, edges) {
  const [low, high] = rangeOf(curve);
  const { top, bottom } = edges;
  const y = curve.isLog ? logScale(low, high, bottom, top) : linearScale(low, high, bottom, top);
  const most = bottom - top > 80 ? 4 : 2;
  return {
    curve,
    ...edges,
    x,
    y,
    ticks: (curve.isLog ? logTicks : linearTicks)(low, high, most),
  };
}

/** The values that a band reaches from and to. @param {Curve} curve @returns {[number, number]} */
export function rangeOf(curve) {
  const known = Array.from(curve.values).filter(
    (value) => Number.isFinite(value) && (!curve.isLog || value > 0),
  );
  if (!known.length) return curve.isLog ? [1, 10] : [0, 1];
  const sorted = known.sort((one, other) => one - other);
  // a few steps far above the others would flatten the curve
  const high = sorted[Math.floor((sorted.length - 1) * 0.995)];
  if (curve.isLog) return [sorted[0] / 1.3, Math.max(high, sorted[0]) * 1.3];
  return [Math.min(0, sorted[0]), high * 1.06 || 1];
}

/**
 * The path of a band's curve; it is broken where a value is not known, and stays inside the band.
 * @param {Band} band @param {number} every @returns {string}
 */
export function pathOf(band, every) {
  let path = "";
  let isDown = false;
  band.curve.values.forEach((value, index) => {
    if (!Number.isFinite(value)) {
      isDown = false;
      return;
    }
    const y = Math.min(band.bottom, Math.max(band.top, band.y(value)));
    path += `${isDown ? "L" : "M"}${band.x(index * every).toFixed(1)} ${y.toFixed(1)}`;
    isDown = true;
  });
  return path;
}

/**
 * The gradient's elements of a layer by size, or of all layers for -1: a row of counts for each
 * watched step, zeros first.
 * @param {Training} training @param {number} layer @returns {number[][]}
 */
export function countsOf(training, layer) {
  const { bins, layers, ranges, rangeSteps } = training;
  return Array.from(rangeSteps, (_, row) =>
    Array.from({ length: bins }, (_, bin) => {
      const at = (/** @type {number} */ index) =>
        ranges[(row * layers.length + index) * bins + bin];
      if (layer >= 0) return at(layer);
      return layers.reduce((sum, _, index) => sum + at(index), 0);
    }),
  );
}

/**
 * The cells of the sizes' heat map: watched steps across, sizes up.
 * @param {Training} training @param {number} layer @param {import("../shared/scale.js").Scale} x
 * @returns {Cell[]}
 */
export function cellsOf(training, layer, x) {
  const counts = countsOf(training, layer);
  const height = HEAT_HEIGHT / Math.max(1, training.bins - 1);
  return counts.flatMap((row, index) => {
    const step = training.rangeSteps[index];
    const next = training.rangeSteps[index + 1] ?? Math.max(training.done - 1, step);
    const total = row.reduce((sum, count) => sum + count, 0) || 1;
    return row.slice(1).flatMap((count, bin) =>
      count
        ? [
            {
              x: x(step),
              y: HEAT_HEIGHT - (bin + 1) * height,
              width: Math.max(1, x(next) - x(step)),
              height,
              share: count / total,
              bin,
              step,
              count,
            },
          ]
        : [],
    );
  });
}

/** The colour step 0–8 of a share: each is a third of the next. @param {number} share */
export function heatStep(share) {
  return Math.max(0, Math.min(8, Math.floor(9 + Math.log(share) / Math.log(3))));
}

/** The y of a power of two in the heat map. @param {Training} training @param {number} power */
export function sizeY(training, power) {
  const bins = Math.max(1, training.bins - 1);
  return HEAT_HEIGHT * (1 - (power - training.lowestExponent) / (bins * training.binWidth));
}

/**
 * What the gradient of a layer was in the last watched step, in words.
 * @param {Training} training @param {number} layer
 */
export function rangeWords(training, layer) {
  const rows = countsOf(training, layer);
  const last = rows[rows.length - 1] ?? [];
  const total = last.reduce((sum, count) => sum + count, 0);
  const used = last.slice(1);
  const first = used.findIndex((count) => count > 0);
  if (!total || first < 0) return "its gradient is zero";
  const final = used.length - 1 - [...used].reverse().findIndex((count) => count > 0);
  const power = (/** @type {number} */ bin) => training.lowestExponent + bin * training.binWidth;
  const zeros = Math.round((100 * last[0]) / total);
  return `sizes from 2^${power(first)} to 2^${power(final + 1)}, ${zeros}% zero`;
}

/** The curve's index of a step. @param {Training} training @param {number} step */
export function indexOfStep(training, step) {
  const count = training.curves[0].values.length;
  return Math.max(0, Math.min(count - 1, Math.floor(step / training.every)));
}
