/** The geometry of a batch sweep: three panels over a logarithmic scale of batches. No DOM. */

import { clamped } from "../shared/label_space.js";
import { linearScale, linearTicks, logScale, logTicks } from "../shared/scale.js";

/**
 * @typedef {{ batch: number, latency_ms?: number | null, spread_ms?: [number, number] | null,
 * throughput_per_s?: number | null,
 *   peak_bytes?: number | null, predicted_bytes?: number | null, utilisation?: number | null,
 *   is_timed_in_turn?: boolean,
 *   failure?: string | null }} BatchRow
 * @typedef {{ rows: BatchRow[], knee: number, plateau: number, memory_limit_bytes: number, reason?:
 * string,
 *   title?: string }} Sweep
 * @typedef {{ x: number, y: number, batch: number }} CurveSpot
 * @typedef {{ name: string, left: number, right: number, top: number, bottom: number, x:
 * import("../shared/scale.js").Scale,
 *   y: import("../shared/scale.js").Scale, ticks: number[], batches: number[], spots: CurveSpot[],
 *   refused: CurveSpot[] }} CurvePanel
 */

const MARGIN = { left: 58, right: 12, top: 24, bottom: 22 };
const NARROW_CURVE = 620;

/** The rows that were measured. @param {BatchRow[]} rows */
export function rowsThatRan(rows) {
  return rows.filter((row) => !row.failure && (row.throughput_per_s ?? 0) > 0);
}

/**
 * The highest throughput, among the rows timed in turn if there are any.
 * @param {BatchRow[]} rows @returns {BatchRow | undefined}
 */
export function bestBatch(rows) {
  const ran = rowsThatRan(rows);
  const inTurn = ran.filter((row) => row.is_timed_in_turn);
  const rates = inTurn.length ? inTurn : ran;
  return rates.reduce(
    (/** @type {BatchRow | undefined} */ best, row) =>
      (best?.throughput_per_s ?? 0) < (row.throughput_per_s ?? 0) ? row : best,
    undefined,
  );
}

/** 1234.5 → "1,234"; small numbers keep three figures. @param {number} number */
export function readableRate(number) {
  return number >= 100
    ? Math.round(number).toLocaleString("en-US")
    : String(Number(number.toPrecision(3)));
}

/**
 * The batches that are written under an axis: powers of two, thinned until they have room.
 * @param {number[]} batches @param {number} room in pixels
 */
export function shownBatches(batches, room) {
  const powers = batches.filter((batch) => Number.isInteger(Math.log2(batch)));
  const every = Math.max(1, Math.ceil((powers.length * 34) / Math.max(1, room)));
  return (powers.length ? powers : batches).filter((_, index) => index % every === 0);
}

/** The measured batch nearest to a position. @param {CurveSpot[]} spots @param {number} x */
export function nearestBatch(spots, x) {
  return spots.reduce(
    (best, spot, index) => (Math.abs(spot.x - x) < Math.abs(spots[best].x - x) ? index : best),
    0,
  );
}

/**
 * Throughput above, latency and memory below it, side by side if there is room.
 * @param {number} width @param {Sweep} sweep @returns {{ height: number, panels: CurvePanel[] }}
 */
export function curvePanels(width, sweep) {
  const isNarrow = width < NARROW_CURVE;
  const tall = clamped(Math.round(width * 0.24), 170, 260);
  const low = isNarrow ? 140 : 165;
  const half = isNarrow ? width : Math.floor((width - 24) / 2);
  const panels = [
    throughputPanel(sweep, frameAt(0, 0, width, tall)),
    latencyPanel(sweep, frameAt(0, tall, half, low)),
    memoryPanel(
      sweep,
      isNarrow ? frameAt(0, tall + low, width, low) : frameAt(width - half, tall, half, low),
    ),
  ];
  return { height: tall + low * (isNarrow ? 2 : 1), panels };
}

/** @param {number} x @param {number} y @param {number} width @param {number} height */
function frameAt(x, y, width, height) {
  return {
    left: x + MARGIN.left,
    right: x + width - MARGIN.right,
    top: y + MARGIN.top,
    bottom: y + height - MARGIN.bottom,
  };
}

/** @typedef {ReturnType<typeof frameAt>} Edges */

/** @param {Sweep} sweep @param {Edges} edges @returns {CurvePanel} */
function throughputPanel(sweep, edges) {
  const most =
    1.12 * Math.max(...rowsThatRan(sweep.rows).map((row) => row.throughput_per_s ?? 0), 0) || 1;
  const y = linearScale(0, most, edges.bottom, edges.top);
  return panel(
    "examples a second",
    sweep,
    edges,
    y,
    linearTicks(0, most, 4),
    (row) => row.throughput_per_s,
  );
}

/** @param {Sweep} sweep @param {Edges} edges @returns {CurvePanel} */
function latencyPanel(sweep, edges) {
  const known = rowsThatRan(sweep.rows)
    .map((row) => row.latency_ms ?? 0)
    .filter((value) => value > 0);
  const [low, high] = [Math.min(...known) / 1.4 || 1, Math.max(...known) * 1.5 || 10];
  return costPanel(
    "latency, ms",
    sweep,
    edges,
    known.length ? [low, high] : [1, 10],
    (row) => row.latency_ms,
  );
}

/** @param {Sweep} sweep @param {Edges} edges @returns {CurvePanel} */
function memoryPanel(sweep, edges) {
  const bytes = sweep.rows.map((row) => row.peak_bytes ?? row.predicted_bytes ?? 0);
  const known = [...bytes, sweep.memory_limit_bytes].filter((value) => value > 0);
  const range = known.length ? [Math.min(...known) / 1.5, Math.max(...known) * 1.6] : [1, 10];
  const drawn = costPanel("memory", sweep, edges, range, (row) => row.peak_bytes);
  const refused = sweep.rows.filter((row) => row.failure && row.predicted_bytes);
  return {
    ...drawn,
    refused: refused.map((row) => ({
      batch: row.batch,
      x: drawn.x(row.batch),
      y: drawn.y(row.predicted_bytes ?? 0),
    })),
  };
}

/**
 * @param {string} name @param {Sweep} sweep @param {Edges} edges @param {number[]} range
 * @param {(row: BatchRow) => number | null | undefined} value @returns {CurvePanel}
 */
function costPanel(name, sweep, edges, [low, high], value) {
  return panel(
    name,
    sweep,
    edges,
    logScale(low, high, edges.bottom, edges.top),
    logTicks(low, high, 5),
    value,
  );
}

/**
 * @param {string} name @param {Sweep} sweep @param {Edges} edges @param
 * {import("../shared/scale.js").Scale} y @param {number[]} ticks
 * @param {(row: BatchRow) => number | null | undefined} value @returns {CurvePanel}
 */
function panel(name, sweep, edges, y, ticks, value) {
  const batches = sweep.rows.map((row) => row.batch);
  const x = logScale(
    Math.min(...batches) / 1.15,
    Math.max(...batches) * 1.15,
    edges.left,
    edges.right,
  );
  const ran = rowsThatRan(sweep.rows).filter((row) => (value(row) ?? 0) > 0);
  const spots = ran.map((row) => ({ batch: row.batch, x: x(row.batch), y: y(value(row) ?? 0) }));
  return {
    name,
    ...edges,
    x,
    y,
    ticks,
    batches: shownBatches(batches, edges.right - edges.left),
    spots,
    refused: [],
  };
}
