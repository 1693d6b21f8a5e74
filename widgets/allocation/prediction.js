/** A point of a frontier as rows: predicted value, achieved value, and their difference. No DOM. */

import { lostQuantity } from "./table.js";
import { readableBytes, threeFigures } from "../shared/format.js";
import { estimateText, heatText } from "../shared/heat_scale.js";
import { errorText } from "../shared/prediction_table.js";

/** @typedef {import("./table.js").AllocationTable} AllocationTable */
/** @typedef {import("./table.js").AllocatedPoint} AllocatedPoint */

/**
 * Achieved times are scaled by the baseline's time in the plan: a machine that is slower today is
 * slower for both.
 * @param {AllocationTable} table @param {AllocatedPoint} point @returns
 * {import("../shared/prediction_table.js").PredictionRow[]}
 */
export function pointRows(table, point) {
  const achieved = point.achieved;
  const [speed, reached] = [
    table.baselineMs / point.latencyMs,
    achieved ? achieved.baselineMs / achieved.latencyMs : NaN,
  ];
  const achievedMs = table.baselineMs / reached;
  const hasLoss = achieved !== null && !Number.isNaN(achieved.loss);
  return [
    {
      name: "latency",
      predicted: `${threeFigures(point.latencyMs)} ms`,
      achieved: achieved ? `${threeFigures(achievedMs)} ms` : "",
      error: errorText(achievedMs / point.latencyMs),
    },
    {
      name: "speed-up",
      predicted: `${speed.toFixed(2)} ×`,
      achieved: achieved ? `${reached.toFixed(2)} ×` : "",
      error: errorText(reached / speed),
    },
    {
      name: lostQuantity(table),
      predicted: lossText(point),
      achieved: hasLoss ? lossText(achieved) : "",
      error: hasLoss ? gapText(point, achieved) : "",
    },
    {
      name: "size",
      predicted: readableBytes(point.sizeBytes),
      achieved: achieved ? readableBytes(achieved.sizeBytes) : "",
      error: achieved ? errorText(achieved.sizeBytes / point.sizeBytes) : "",
    },
    ...(achieved && !Number.isNaN(achieved.metric)
      ? [
          {
            name: "metric",
            predicted: "",
            achieved: String(Number(achieved.metric.toPrecision(4))),
            error: "",
          },
        ]
      : []),
  ];
}

/** A zero error is not shown. @param {{ loss: number, lossError: number }} one */
function lossText({ loss, lossError }) {
  return estimateText(loss, lossError > 0 ? lossError : NaN);
}

/**
 * The achieved minus the predicted loss.
 * @param {AllocatedPoint} point @param {{ loss: number }} achieved
 */
function gapText(point, achieved) {
  const gap = achieved.loss - point.loss;
  return gap > 0 ? `+${heatText(gap)}` : heatText(gap);
}
