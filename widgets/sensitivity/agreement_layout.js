/**
 * The geometry of predicted against measured: both axes share one scale, so that equality is the
 * diagonal. No DOM.
 */

import { clamped } from "../shared/label_space.js";
import { logScale, logTicks } from "../shared/scale.js";
import { heatScale } from "../shared/heat_scale.js";
import { measuredAt, predictedAt } from "./table.js";

/**
 * @typedef {{ row: number, format: number, predicted: number, measured: number, predictedError:
 * number, measuredError: number }} Pair
 * @typedef {{ width: number, height: number, left: number, right: number, top: number, bottom:
 * number, floor: number, highest: number,
 *   x: import("../shared/scale.js").Scale, y: import("../shared/scale.js").Scale, ticks: number[]
 *   }} AgreementFrame
 * @typedef {Pair & { x: number, y: number, radius: number, isBelow: boolean }} PairDot `isBelow`:
 * at the edge, as it is 0, negative or too small
 */

const AGREEMENT_MARGIN = { left: 50, right: 10, top: 8, bottom: 36 };

/**
 * The layers and formats that were both predicted and measured.
 * @param {import("./table.js").SensitivityTable} table @returns {Pair[]}
 */
export function agreementPairs(table) {
  if (table.method === "ablation") return [];
  const pairs = table.formats.flatMap((name, format) =>
    table.layers.map((_, row) => ({
      row,
      format,
      predicted: predictedAt(table, row, name),
      measured: measuredAt(table, row, name),
      predictedError: table.predicted[name]?.error[row] ?? NaN,
      measuredError: table.measured[name]?.error[row] ?? NaN,
    })),
  );
  return pairs.filter((pair) => Number.isFinite(pair.predicted) && Number.isFinite(pair.measured));
}

/** @param {number} width @param {Pair[]} pairs @returns {AgreementFrame} */
export function agreementFrame(width, pairs) {
  const { floor, top } = heatScale(pairs.flatMap((pair) => [pair.predicted, pair.measured])) ?? {
    floor: 0.1,
    top: 1,
  };
  const height = clamped(width - AGREEMENT_MARGIN.left + AGREEMENT_MARGIN.bottom, 180, 380);
  const [left, right, up, bottom] = [
    AGREEMENT_MARGIN.left,
    width - AGREEMENT_MARGIN.right,
    AGREEMENT_MARGIN.top,
    height - AGREEMENT_MARGIN.bottom,
  ];
  const room = (top / floor) ** 0.05; // marks at the ends stay whole
  const [lowest, highest] = [floor / room ** 2, top * room];
  const x = logScale(lowest, highest, left, right);
  const y = logScale(lowest, highest, bottom, up);
  const ticks = logTicks(floor, top, 5).filter((tick) => tick >= floor);
  return { width, height, left, right, top: up, bottom, floor, highest, x, y, ticks };
}

/** @param {Pair[]} pairs @param {AgreementFrame} frame @returns {PairDot[]} */
export function pairDots(pairs, frame) {
  const least = frame.floor * (1 - 1e-6);
  return pairs.map((pair) => ({
    ...pair,
    x: pair.predicted >= least ? frame.x(pair.predicted) : frame.left,
    y: pair.measured >= least ? frame.y(pair.measured) : frame.bottom,
    radius: 3.6,
    isBelow: pair.predicted < least || pair.measured < least,
  }));
}
