/** A column of figures whose texts, tones and order Python describes. */

import { fresh, set } from "./dom.js";

/**
 * `values` are what it is sorted by; `spoken` is what is said aloud in place of the texts.
 * @typedef {{ name: string, label: string, width: number, rank: number, hint: string,
 *   values: (number | null)[], texts: string[], tones?: string[], spoken?: string[] }} Figure
 */

/** @param {Figure} figure @returns {import("./grid.js").Column<any>} */
export function figureColumn({ values, texts, tones = [], spoken = [], ...column }) {
  return {
    ...column,
    isNumber: true,
    value: (_, row) => values[row] ?? NaN,
    draw(cell, _, row) {
      set(fresh(cell, texts[row]), { "aria-label": spoken[row], title: spoken[row] });
      for (const tone of ["good", "bad"])
        cell.classList.toggle(`pf-is-${tone}`, tones[row] === tone);
    },
  };
}
