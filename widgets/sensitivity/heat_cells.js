/** A cell of a heat map, as the sensitivity view and the layer table draw it. */

import { predictedAt } from "./table.js";
import { h, set } from "../shared/dom.js";
import {
  HEAT_STEPS,
  heatLook,
  heatShare,
  heatStep,
  heatText,
  heatTicks,
} from "../shared/heat_scale.js";

/** @typedef {import("./table.js").SensitivityTable} SensitivityTable */

/**
 * What stands in a cell: the number itself where it is not positive, so that a gain is seen as one.
 * @param {import("../shared/heat_scale.js").HeatScale | null} scale @param {number} value
 */
export function heatCellText(scale, value) {
  const isTiny = scale !== null && value > 0 && heatStep(scale, value) < 0;
  return isTiny ? `< ${heatText(scale.floor)}` : heatText(value);
}

/**
 * The cells of a layer without numbers, for a narrow column.
 * @param {SensitivityTable} table @param {number} row @param {string} chosen
 */
export function heatStrip(table, row, chosen) {
  const cells = table.formats.map((format) => {
    const look = heatLook(table.scale, predictedAt(table, row, format));
    return h("i", { class: `${look}${format === chosen ? " pf-heat-taken" : ""}` });
  });
  return h("span", { class: "pf-heat-strip", "aria-hidden": "true" }, ...cells);
}

/** A layer's numbers in a line of text. @param {SensitivityTable} table @param {number} row */
export function heatWords(table, row) {
  return table.formats
    .map((format) => `${format} ${heatText(predictedAt(table, row, format))}`)
    .join(", ");
}

/**
 * The scale: its colours in order, powers of ten under them, and what is below.
 * @param {import("../shared/heat_scale.js").HeatScale | null} scale @param {string} quantity
 */
export function heatLegend(scale, quantity) {
  if (!scale)
    return h(
      "div",
      { class: "pf-heat-legend" },
      h("span", {}, `${quantity}: none that is above 0`),
    );
  const steps = Array.from({ length: HEAT_STEPS }, (_, step) =>
    h("i", { class: `pf-heat pf-heat-${step}` }),
  );
  const ticks = heatTicks(scale).map((value) =>
    set(h("small", {}, heatText(value)), { style: `left: ${100 * heatShare(scale, value)}%` }),
  );
  const below = h(
    "span",
    { class: "pf-heat-under" },
    h("i", { class: "pf-heat pf-heat-below" }),
    h("small", {}, `< ${heatText(scale.floor)}`),
  );
  const bar = h(
    "span",
    { class: "pf-heat-bar" },
    h("span", { class: "pf-heat-steps" }, ...steps),
    h("span", { class: "pf-heat-ticks" }, ...ticks),
  );
  const label = `${quantity}, from ${heatText(scale.floor)} to ${heatText(scale.top)} on a logarithmic scale; hatched is below`;
  return h(
    "div",
    { class: "pf-heat-legend", role: "img", "aria-label": label },
    h("span", {}, quantity),
    below,
    bar,
  );
}
