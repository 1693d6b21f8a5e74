/** Formats that a layer cannot be in are seen in its list of choices, and say why. */

import { whyNot } from "../sensitivity/chosen_formats.js";
import { set } from "../shared/dom.js";

/**
 * The precision column, with those choices barred.
 * @param {import("../layers/columns.js").Column} column @param {() => any} state what Python sent:
 * `cannot_in` maps layers to formats to reasons
 * @returns {import("../layers/columns.js").Column}
 */
export function withBarredChoices(column, state) {
  const reasonsOf = (/** @type {string} */ layer) => state().cannot_in?.[layer] ?? {};
  return {
    ...column,
    width: 104, // "int8-weights" is the longest
    key: (table, row) =>
      `${column.key?.(table, row)} ${JSON.stringify(reasonsOf(table.layers[row]))}`,
    draw(cell, table, row) {
      column.draw(cell, table, row);
      const layer = table.layers[row];
      for (const option of cell.querySelectorAll("option"))
        bar(option, whyNot({ cannot_in: { [layer]: reasonsOf(layer) } }, layer, option.value));
      cell.title ||= barredWords(reasonsOf(layer));
    },
  };
}

/** One line per reason, with all its formats. @param {Record<string, string>} reasons */
export function barredWords(reasons) {
  const formats = new Map(Object.values(reasons).map((why) => [why, /** @type {string[]} */ ([])]));
  for (const [name, why] of Object.entries(reasons)) formats.get(why)?.push(name);
  return [...formats].map(([why, names]) => `not ${names.join(", ")}: ${why}`).join("\n");
}

/** @param {HTMLOptionElement} option @param {string} why */
function bar(option, why) {
  set(option, { disabled: Boolean(why), title: why || null });
}
