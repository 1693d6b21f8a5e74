/** The strip of where the time goes, over the layer table: a click chooses a layer. */

import { boundLegend, boundWord } from "./bounds.js";
import { levelsOf, timeParts } from "./time_layout.js";
import { onWidth } from "../shared/chart.js";
import { fresh, h, set } from "../shared/dom.js";
import { fittedName, measureIn } from "../shared/fitted_name.js";
import { readablePercent, threeDigits } from "../shared/format.js";
import { numberAt } from "../shared/unpack.js";

/** @typedef {import("./time_layout.js").Part} Part */

const LEVEL_HEIGHT = 20;
const LABEL_ROOM = 24; // in less than that no letter tells anything
const LEAST_LETTERS = 5; // of a name that is cut
const MOST_SPOKEN = 5;

export class TimeStrip {
  /** @param {(layer: string) => void} onChoose */
  constructor(onChoose) {
    this.onChoose = onChoose;
    this.title = h("h3", {});
    this.chart = h("div", { class: "pf-icicle", role: "img" });
    this.element = h(
      "section",
      { class: "pf-time-strip", hidden: true },
      h("div", { class: "pf-strip-head" }, this.title, boundLegend()),
      this.chart,
    );
    /** @type {import("../shared/unpack.js").LayerTable | null} */
    this.table = null;
    /** @type {Part[]} */
    this.parts = [];
    this.width = 0;
    this.chosen = "";
    this.chart.addEventListener("click", (event) => this.onClick(event));
    this.release = onWidth(this.chart, (width) => {
      this.width = width;
      this.draw();
    });
  }

  /** @param {import("../shared/unpack.js").LayerTable} table */
  show(table) {
    this.table = table;
    this.parts = timeParts(table);
    const levels = levelsOf(this.parts);
    this.element.hidden = levels < 2;
    if (this.element.hidden) return;
    const whole = threeDigits(numberAt(table, "total_ms", 0));
    fresh(
      this.title,
      table.isUncertain ? "Where the time goes, roughly" : `Where the ${whole} ms go`,
    );
    this.chart.style.height = `${levels * LEVEL_HEIGHT}px`;
    this.chart.classList.toggle("pf-hatched", table.isUncertain);
    set(this.chart, { "aria-label": this.words(table) });
    this.draw();
  }

  /** @param {string} layer */
  select(layer) {
    this.chosen = layer;
    for (const element of this.chart.children) this.mark(/** @type {HTMLElement} */ (element));
  }

  destroy() {
    this.release();
  }

  // Private to the strip.

  draw() {
    const { table, width } = this;
    if (!table || !width || this.element.hidden) return;
    const measure = measureIn(this.chart);
    fresh(this.chart, ...this.parts.map((part) => this.box(table, part, measure)));
  }

  /**
   * @param {import("../shared/unpack.js").LayerTable} table @param {Part} part
   * @param {import("../shared/fitted_name.js").Measure} measure
   */
  box(table, part, measure) {
    const layer = table.layers[part.row];
    const ms = `${table.isUncertain ? "≈ " : ""}${threeDigits(numberAt(table, "total_ms", part.row))} ms`;
    const bound = part.isGroup ? "" : table.bound[part.row];
    const amount = part.row === 0 ? ms : readablePercent(part.share);
    const box = h(
      "span",
      {
        class: `pf-part ${bound ? `pf-${bound}` : part.isGroup ? "pf-group" : "pf-unknown"}`,
        title: [layer || part.label, ms, bound && `limited by ${boundWord(bound)}`]
          .filter(Boolean)
          .join(" · "),
      },
      this.label(part, amount, measure),
    );
    box.dataset.row = String(part.row);
    box.style.left = `${(100 * part.left).toFixed(3)}%`;
    box.style.width = `calc(${(100 * part.width).toFixed(3)}% - 1px)`;
    box.style.top = `${part.level * LEVEL_HEIGHT}px`;
    this.mark(box);
    return box;
  }

  /**
   * @param {Part} part @param {string} amount
   * @param {import("../shared/fitted_name.js").Measure} measure
   */
  label(part, amount, measure) {
    const room = part.width * this.width - 9;
    if (room < LABEL_ROOM) return "";
    const whole = `${part.label} · ${amount}`;
    if (part.isGroup && measure(whole) <= room) return whole;
    const name = fittedName(part.label, room, measure);
    return name === part.label || name.length >= LEAST_LETTERS ? name : "";
  }

  /** @param {HTMLElement} box */
  mark(box) {
    const layer = this.table?.layers[Number(box.dataset.row)];
    box.classList.toggle("pf-chosen", Boolean(layer) && layer === this.chosen);
  }

  /** @param {import("../shared/unpack.js").LayerTable} table */
  words(table) {
    const costly = this.parts
      .filter((part) => part.row > 0 && !part.isGroup)
      .sort((first, second) => second.share - first.share)
      .slice(0, MOST_SPOKEN)
      .map((part) => `${table.layers[part.row]} ${readablePercent(part.share)}`);
    return `where the time goes; most of it in ${costly.join(", ")}; the table below has every layer`;
  }

  /** @param {MouseEvent} event */
  onClick(event) {
    const box = /** @type {HTMLElement | null} */ (
      /** @type {Element} */ (event.target).closest(".pf-part")
    );
    if (box && this.table) this.onChoose(this.table.layers[Number(box.dataset.row)]);
  }
}
