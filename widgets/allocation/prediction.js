/**
 * A point of a frontier as rows: what was predicted, what it really did, and how far the two are
 * apart. No page in here.
 */

import { lostQuantity } from "./table.js";
import { readableBytes, threeFigures } from "../shared/format.js";
import { estimateText, heatText } from "../shared/heat_scale.js";
import { errorText } from "../shared/prediction_table.js";

/** @typedef {import("./table.js").AllocationTable} AllocationTable */
/** @typedef {import("./table.js").AllocatedPoint} AllocatedPoint */

/**
 * Times as the model as it is took them in the plan: a machine that is slower today is so for both.
 * @param {AllocationTable} table @param {AllocatedPoint} point @returns
 * {import("../shared/prediction_table.js").PredictionRow[]}
 */
export function pointRows(table, point) {
  const did = point.achieved;
  const [speed, reached] = [
    table.baselineMs / point.latencyMs,
    did ? did.baselineMs / did.latencyMs : NaN,
  ];
  const achievedMs = table.baselineMs / reached;
  const isJudged = did !== null && !Number.isNaN(did.loss);
  return [
    {
      name: "latency",
      predicted: `${threeFigures(point.latencyMs)} ms`,
      achieved: did ? `${threeFigures(achievedMs)} ms` : "",
      error: errorText(achievedMs / point.latencyMs),
    },
    {
      name: "speed-up",
      predicted: `${speed.toFixed(2)} ×`,
      achieved: did ? `${reached.toFixed(2)} ×` : "",
      error: errorText(reached / speed),
    },
    {
      name: lostQuantity(table),
      predicted: lossText(point),
      achieved: isJudged ? lossText(did) : "",
      error: isJudged ? gapText(point, did) : "",
    },
    {
      name: "size",
      predicted: readableBytes(point.sizeBytes),
      achieved: did ? readableBytes(did.sizeBytes) : "",
      error: did ? errorText(did.sizeBytes / point.sizeBytes) : "",
    },
    ...(did && !Number.isNaN(did.metric)
      ? [
          {
            name: "metric",
            predicted: "",
            achieved: String(Number(did.metric.toPrecision(4))),
            error: "",
          },
        ]
      : []),
  ];
}

/** An error of nothing is not shown. @param {{ loss: number, lossError: number }} one */
function lossText({ loss, lossError }) {
  return estimateText(loss, lossError > 0 ? lossError : NaN);
}

/**
 * What was achieved less what was predicted; how uncertain both are stands beside them.
 * @param {AllocatedPoint} point @param {{ loss: number }} did
 */
function gapText(point, did) {
  const gap = did.loss - point.loss;
  return gap > 0 ? `+${heatText(gap)}` : heatText(gap);
}
