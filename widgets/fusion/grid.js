/** The grid of fusion sites, each row with a switch. Independent of Python and the workbench. */

import { fusionColumns, leastPlaceWidth } from "./row.js";
import { fusionTable } from "./table.js";
import { Grid } from "../shared/grid.js";

/** @typedef {import("./table.js").FusedPlace} FusedPlace */
/** @typedef {import("./table.js").FusionTable} FusionTable */

/** @extends {Grid<FusionTable>} */
export class FusionGrid extends Grid {
  /**
   * @param {import("../shared/grid.js").GridHandlers & { onSwitch: (place: string, isOn: boolean)
   * => void, choice: () => import("./choice.js").FusionChoice, hasSwitches: boolean }} own
   */
  constructor(own) {
    super(own, {
      table: fusionTable({}),
      label: `places where layers can run as one; arrows move${own.hasSwitches ? ", Enter switches" : ""}`,
      rowHeight: 40,
      look: "pf-fusion-grid",
    });
    this.own = own;
  }

  /** The site at the cursor, if it is shown. */
  get described() {
    const { index, rows, table } = this.shown;
    return index < 0 ? null : table.places[rows[index]];
  }

  /** Scroll the site of a layer into view. @param {string} layer */
  select(layer) {
    this.choose(this.shown.table.placeOf.get(layer) ?? null);
  }

  /** @override */
  all() {
    const { table } = this.shown;
    return fusionColumns(table, this.own.hasSwitches, this.own.choice, () => this.shown.query);
  }

  /** @override @param {number} width */
  leastNameWidth(width) {
    return leastPlaceWidth(width);
  }

  /** @override @param {HTMLElement} element @param {number} row */
  describe(element, row) {
    const site = this.shown.table.places[row];
    const { sentence } = this.isOn(site) ? site.on : site.off;
    element.setAttribute("aria-label", `${site.layers.join(" + ")}: ${sentence}`);
    element.classList.toggle("pf-fusion-apart", !site.can_switch);
  }

  /** @param {FusedPlace} site */
  isOn({ layers }) {
    return this.own.choice().on.has(layers[0]);
  }

  /** @override @param {number} index */
  act(index) {
    const site = this.shown.table.places[this.shown.rows[index]];
    if (site.can_switch && this.own.hasSwitches)
      this.own.onSwitch(site.layers[0], !this.isOn(site));
  }

  /** @override @param {MouseEvent} event */
  onClick(event) {
    super.onClick(event);
    if (/** @type {HTMLElement} */ (event.target).closest(".pf-switch")) this.act(this.shown.index);
  }
}
