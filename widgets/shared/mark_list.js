/** A drawing whose marks are a listbox: pointed at, gone through by keys, and chosen. */

import { HoverCard, indexAfterKey } from "./chart.js";
import { h, s, set } from "./dom.js";

/**
 * What a view says of its marks, each known by a value of its own. `order` is that of the keys,
 * `at` the mark at a spot, `mark` redraws what is pointed.
 * @template Mark
 * @typedef {{ order: () => Mark[], at: (x: number, y: number) => Mark | null, mark: () => void,
 *   choose: (mark: Mark) => void }} Marks
 */

/** @template Mark */
export class MarkList {
  /** @param {Marks<Mark>} marks */
  constructor(marks) {
    this.marks = marks;
    /** @type {Mark | null} */
    this.pointed = null;
    this.drawing = s("svg", { role: "listbox", tabindex: "0", class: "pf-svg" });
    this.plot = h("div", { class: "pf-plot" }, this.drawing);
    this.card = new HoverCard(this.plot);
    set(this.drawing, {
      onpointermove: (event) => this.point(this.under(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.point(null),
      onclick: (event) => this.choose(this.under(/** @type {PointerEvent} */ (event))),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      onblur: () => this.point(null),
    });
  }

  /** @param {Mark | null} mark */
  point(mark) {
    this.drawing.classList.toggle("pf-is-pointing", mark !== null);
    if (mark === this.pointed) return;
    this.pointed = mark;
    this.marks.mark();
  }

  /** @param {Mark | null} mark */
  choose(mark) {
    if (mark !== null) this.marks.choose(mark);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { key } = event;
    const order = this.marks.order();
    const at = this.pointed === null ? -1 : order.indexOf(this.pointed);
    const isMove = key.startsWith("Arrow") || key === "Home" || key === "End";
    if (key === "Escape" && this.pointed !== null) this.point(null);
    else if (key === "Enter" || key === " ") this.choose(this.pointed);
    else if (isMove) this.point(order[indexAfterKey(key, at, order.length)] ?? null);
    else return;
    event.preventDefault();
  }

  /** @param {PointerEvent} event */
  under(event) {
    const box = this.drawing.getBoundingClientRect();
    return this.marks.at(event.clientX - box.left, event.clientY - box.top);
  }
}
