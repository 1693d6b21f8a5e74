/** Cells of a heat map, for the sensitivity view and the layer table. */

import { cellFigures, cellRemark, isUntold, predictedAt } from "./table.js";
import { fresh, h, set } from "../shared/dom.js";
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
 * The text of a cell. Numbers that are not positive are shown, so that a gain is visible.
 * @param {import("../shared/heat_scale.js").HeatScale | null} scale @param {number} value
 */
export function heatCellText(scale, value) {
  const isTiny = scale !== null && value > 0 && heatStep(scale, value) < 0;
  return isTiny ? `< ${heatText(scale.floor)}` : heatText(value);
}

/**
 * The colour of a cell: none, but hatching, where its cost cannot be told from 0.
 * @param {SensitivityTable} table @param {number} row @param {string} format
 */
export function costLook(table, row, format) {
  return isUntold(table, row, format)
    ? "pf-heat pf-heat-untold"
    : heatLook(table.scale, predictedAt(table, row, format));
}

/**
 * @typedef {{ id: string, column: number, reason: string, isTaken: boolean, isAsked: boolean,
 * hasCursor: boolean, hasNumber: boolean }} HeatCellOptions `reason`: why the format cannot be
 * chosen, or ""
 */

/**
 * The cell of a layer and a format in the grid.
 * @param {HTMLElement} cell @param {SensitivityTable} table @param {number} row @param {string}
 * format @param {HeatCellOptions} options
 */
export function drawHeatCell(cell, table, row, format, options) {
  const value = predictedAt(table, row, format);
  const isBarred = Number.isNaN(value) || Boolean(options.reason);
  const classes = [
    "pf-cell pf-heat-cell",
    costLook(table, row, format),
    options.isTaken && "pf-heat-taken",
    options.isAsked && "pf-heat-asked",
    isBarred && "pf-heat-barred",
    options.hasCursor && "pf-heat-cursor",
  ];
  set(cell, {
    class: classes.filter(Boolean).join(" "),
    id: options.id,
    "data-column": options.column,
    "aria-selected": String(options.isTaken),
    "aria-disabled": isBarred ? "true" : null,
    "aria-label": heatCellLabel(table, row, format, options.reason),
  });
  cell.textContent = options.hasNumber || Number.isNaN(value) ? costText(table, row, format) : "";
}

/**
 * @param {SensitivityTable} table @param {number} row @param {string} format @param {string} reason
 */
function heatCellLabel(table, row, format, reason) {
  const figures = cellFigures(table, row, format).map(([value, name]) => `${name} ${value}`);
  return [`${table.layers[row]} in ${format}`, ...figures, cellRemark(table, row, format), reason]
    .filter(Boolean)
    .join(", ");
}

/** @param {SensitivityTable} table @param {number} row @param {string} format */
export function costText(table, row, format) {
  return isUntold(table, row, format)
    ? "≈ 0"
    : heatCellText(table.scale, predictedAt(table, row, format));
}

/** The layer's name at the head of its row. @param {HTMLElement} cell @param {SensitivityTable} table @param {number} row */
export function drawHeatName(cell, table, row) {
  const path = table.layers[row];
  const cut = path.lastIndexOf(".") + 1;
  cell.title = [path, table.kind[row], table.note[row]].filter(Boolean).join(" · ");
  const where = h("span", { class: "pf-where" }, path.slice(0, cut));
  const name = h("span", { class: "pf-text pf-path" }, where, h("span", {}, path.slice(cut)));
  fresh(cell, name);
}

/**
 * The cells of a layer without numbers, for a narrow column.
 * @param {SensitivityTable} table @param {number} row @param {string} chosen
 */
export function heatStrip(table, row, chosen) {
  const cells = table.formats.map((format) => {
    const look = costLook(table, row, format);
    return h("i", { class: `${look}${format === chosen ? " pf-heat-taken" : ""}` });
  });
  return h("span", { class: "pf-heat-strip", "aria-hidden": "true" }, ...cells);
}

/** A layer's numbers in a line of text. @param {SensitivityTable} table @param {number} row */
export function heatWords(table, row) {
  return table.formats.map((format) => `${format} ${costText(table, row, format)}`).join(", ");
}

/**
 * The legend of the scale: its colours, powers of ten, and the part below.
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
  const untold = h(
    "span",
    { class: "pf-heat-under" },
    h("i", { class: "pf-heat pf-heat-untold" }),
    h("small", {}, "≈ 0, as far as can be told"),
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
  const range = `from ${heatText(scale.floor)} to ${heatText(scale.top)}`;
  const label = `${quantity}, ${range} on a logarithmic scale; hatched is below`;
  return h(
    "div",
    { class: "pf-heat-legend", role: "img", "aria-label": label },
    h("span", {}, quantity),
    untold,
    below,
    bar,
  );
}
