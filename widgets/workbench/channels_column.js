/** The layer table's column of kept channels: of the running variant, or as chosen or dragged. */

import { fresh, h } from "../shared/dom.js";

/**
 * @param {() => { channels: Record<string, [number, number]>, chosen: Map<string, number> }} current
 *   `channels`: those of each layer now and before; `chosen`: layer → kept, as chosen or dragged
 * @returns {import("../layers/columns.js").Column}
 */
export function channelsColumn(current) {
  /** @type {(layer: string) => { kept: number, all: number, isAsked: boolean } | null} */
  const countOf = (layer) => {
    const { channels, chosen } = current();
    const [now, all] = channels[layer] ?? [NaN, NaN];
    if (Number.isNaN(all)) return null;
    const kept = chosen.get(layer) ?? now;
    return { kept, all, isAsked: kept !== now };
  };
  return {
    name: "channels",
    label: "Channels",
    width: 78,
    rank: 92,
    isNumber: true,
    hint:
      "output channels kept, of those that the layer had; " +
      "in italics: chosen, but not yet applied",
    value: (table, row) => {
      const count = countOf(table.layers[row]);
      return count ? count.kept / count.all : NaN;
    },
    key: (table, row) => JSON.stringify(countOf(table.layers[row])),
    draw: (cell, table, row) => drawCount(cell, countOf(table.layers[row])),
  };
}

/**
 * @param {HTMLElement} cell @param {{ kept: number, all: number, isAsked: boolean } | null} count
 */
function drawCount(cell, count) {
  cell.classList.toggle("pf-nothing", count !== null && count.kept === count.all);
  cell.classList.toggle("pf-channels-chosen", Boolean(count?.isAsked));
  fresh(cell, count && h("span", {}, `${count.kept}/${count.all}`));
}
