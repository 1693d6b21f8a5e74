/** A number format for each layer: the frontier of what can be had, what its points really did, and which of them is the recipe. */

import { allocationDots, allocationFrame, cardSpot } from "./allocation_layout.js";
import { achievedMark, allocationGrid, allocationLegend, allocationMark, budgetMarks, chosenRing, frontierLines, pointedMarks, uniformLabels } from "./allocation_marks.js";
import { formatWords, layerCount, pointFigures, unpackedAllocation } from "./allocation_table.js";
import { HoverCard, freshId, indexAfterKey, onWidth } from "./chart.js";
import { fresh, h, s, set } from "./dom.js";
import { nearestDot } from "./roofline_layout.js";

/** @typedef {import("./allocation_layout.js").AllocationDot} AllocationDot */
/** @typedef {import("./allocation_table.js").AllocatedPoint} AllocatedPoint */

const NONE = -1;

/** @param {HTMLElement} root @param {import("./host.js").Host} _host @param {any} model @returns {import("./host.js").View} */
export function allocation(root, _host, model) {
  return new AllocationView(root, model);
}

class AllocationView {
  /** @param {HTMLElement} root @param {any} model */
  constructor(root, model) {
    this.model = model;
    this.id = freshId("allocation");
    this.table = unpackedAllocation({});
    /** @type {AllocationDot[]} */
    this.dots = [];
    /** @type {import("./allocation_layout.js").AllocationFrame | null} */
    this.frame = null;
    this.pointed = NONE;
    this.told = NONE;
    /** @type {SVGElement[]} */
    this.marks = [];
    this.title = h("h2", {});
    this.reason = h("p", { class: "pf-note" });
    this.legend = h("div", {});
    this.drawing = s("svg", { role: "listbox", tabindex: "0", class: "pf-svg" });
    this.overlay = s("g", { class: "pf-overlay", "aria-hidden": "true" });
    this.plot = h("div", { class: "pf-plot" }, this.drawing);
    this.card = new HoverCard(this.plot);
    this.taken = h("div", { class: "pf-taken", role: "status" });
    this.notes = h("div", { class: "pf-allocation-notes" });
    const head = h("div", { class: "pf-view-head" }, h("div", { class: "pf-heat-titles" }, this.title, this.reason), this.legend);
    root.append(h("section", { class: "pf-view pf-allocation", "aria-label": "allocation of number formats" }, head, this.plot, this.taken, this.notes));
    this.listen();
    this.release = onWidth(this.plot, (width) => this.draw(width));
  }

  listen() {
    this.onChosen = () => this.mark();
    this.model.on("change:chosen", this.onChosen);
    set(this.drawing, {
      onpointermove: (event) => this.point(this.under(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.point(NONE),
      onclick: (event) => this.choose(this.under(/** @type {PointerEvent} */ (event))),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      onfocus: () => this.drawing.matches(":focus-visible") && this.point(this.chosen),
      onblur: () => this.point(NONE),
    });
  }

  /** @param {any} data */
  show(data) {
    this.table = unpackedAllocation(data);
    this.pointed = this.told = NONE;
    const { isKnown, title, reason, notes } = this.table;
    fresh(this.title, title || "A number format for each layer");
    fresh(this.reason, isKnown ? reason : "Nobody has planned it yet.");
    fresh(this.legend, isKnown && allocationLegend(this.table));
    fresh(this.notes, ...notes.map((note) => h("p", { class: "pf-note" }, note)));
    this.plot.hidden = this.taken.hidden = !isKnown;
    this.draw(this.plot.clientWidth);
  }

  destroy() {
    this.release();
    this.model.off("change:chosen", this.onChosen);
  }

  /** @returns {number} */
  get chosen() {
    return this.model.get("chosen") ?? NONE;
  }

  /** @param {number} width */
  draw(width) {
    if (!this.table.isKnown || width <= 0) return;
    const { table } = this;
    const frame = allocationFrame(width, table);
    this.frame = frame;
    this.dots = allocationDots(table, frame);
    const predicted = this.dots.filter((dot) => !dot.isAchieved);
    this.marks = predicted.map((dot) => allocationMark(dot, `${this.id}-${dot.index}`, this.words(table.points[dot.index])));
    const label = `${this.marks.length} choices of number formats, the frontier first; arrow keys go through them, Enter chooses`;
    set(this.drawing, { width, height: frame.height, viewBox: `0 0 ${width} ${frame.height}`, "aria-label": label });
    fresh(
      this.drawing,
      allocationGrid(table, frame),
      budgetMarks(table, frame),
      frontierLines(this.dots),
      ...this.dots.filter((dot) => dot.isAchieved).map(achievedMark),
      ...this.marks,
      uniformLabels(table, frame, this.dots),
      this.overlay,
    );
    this.mark();
  }

  /** Rings, error bars and the card follow what is pointed at and what is chosen; nothing else is drawn anew. */
  mark() {
    const { table, frame, dots } = this;
    if (!frame || !table.isKnown) return;
    const [pointed, chosen] = [table.points[this.pointed], table.points[this.chosen]];
    fresh(this.overlay, ...(pointed ? pointedMarks(table, frame, dots, dots[this.pointed]) : []), chosen && chosenRing(dots[this.chosen]));
    this.marks.forEach((mark, index) => mark.setAttribute("aria-selected", String(index === this.chosen)));
    set(this.drawing, { "aria-activedescendant": pointed && `${this.id}-${this.pointed}` });
    if (pointed) this.card.show(cardSpot(dots, this.pointed, frame.width), pointed.name, this.line(pointed), pointFigures(table, pointed));
    else this.card.hide();
    if (chosen) this.tell(chosen);
  }

  /** What is chosen, in figures and formats. @param {AllocatedPoint} point */
  tell(point) {
    if (this.told === point.index) return;
    this.told = point.index;
    const figures = pointFigures(this.table, point).map(([value, name]) => h("span", {}, h("b", {}, value), ` ${name}`));
    const chips = Object.entries(point.counts).map(([format, count]) => h("li", { class: "pf-recipe-chip" }, format, h("small", {}, layerCount(count))));
    fresh(
      this.taken,
      h("h3", {}, point.name, h("small", {}, point.isPlanned ? "the plan's choice" : "chosen")),
      h("p", { class: "pf-readout" }, ...figures),
      h("ul", { class: "pf-format-chips" }, ...chips, point.around !== "fp32" && h("li", { class: "pf-note" }, `${point.around} between them`)),
      h("p", { class: "pf-note" }, "A click on a point chooses it: panel.recipe is what is chosen, panel.chosen its place."),
    );
  }

  /** @param {number} index */
  point(index) {
    if (index === this.pointed) return;
    this.pointed = index;
    this.drawing.classList.toggle("pf-is-pointing", index !== NONE);
    this.mark();
  }

  /** @param {number} index */
  choose(index) {
    if (index === NONE || index === this.chosen) return;
    this.model.set("chosen", index);
    this.model.save_changes();
    this.mark();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "Escape") this.point(NONE);
    else if (event.key === "Enter" || event.key === " ") this.choose(this.pointed);
    else if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") this.point(indexAfterKey(event.key, this.pointed, this.marks.length));
    else return;
    event.preventDefault();
  }

  /** @param {PointerEvent} event */
  under(event) {
    const box = this.drawing.getBoundingClientRect();
    const nearest = nearestDot(/** @type {any[]} */ (this.dots), event.clientX - box.left, event.clientY - box.top);
    return /** @type {AllocationDot | null} */ (/** @type {unknown} */ (nearest))?.index ?? NONE;
  }

  /** @param {AllocatedPoint} point */
  line(point) {
    return [formatWords(point), point.isPlanned && "the plan's choice", point.index === this.chosen ? "chosen" : "a click chooses it"].filter(Boolean).join(" · ");
  }

  /** @param {AllocatedPoint} point */
  words(point) {
    return [point.name, formatWords(point), ...pointFigures(this.table, point).map(([value, name]) => `${value} ${name}`)].join(", ");
  }
}
