/**
 * The allocation view: the frontier of formats, the measured values of its points, and the chosen
 * one.
 */

import { budgetFields } from "./budget_form.js";
import { allocationDots, allocationFrame, cardSpot } from "./layout.js";
import {
  achievedMark,
  allocationGrid,
  allocationLegend,
  allocationMark,
  budgetMarks,
  chosenRing,
  formatChips,
  frontierLines,
  pointedMarks,
  uniformLabels,
} from "./marks.js";
import { pointRows } from "./prediction.js";
import {
  formatWords,
  pointFigures,
  shownPoint,
  standingWords,
  unpackedAllocation,
} from "./table.js";
import { freshId, HoverCard, indexAfterKey, onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { unserved } from "../shared/host.js";
import { nearestDot } from "../shared/points.js";
import { Question } from "../shared/question.js";
import { PredictionTable } from "../shared/prediction_table.js";

/** @typedef {import("./layout.js").AllocationDot} AllocationDot */
/** @typedef {import("./table.js").AllocatedPoint} AllocatedPoint */

const QUESTION = {
  query: "allocation",
  request: "allocation",
  question: "Which mixture of formats is the fastest within what you allow?",
  use: "Each layer gets a format of its own; a click on a mixture makes it the recipe, and measures it.",
};
const NONE = -1;
const MEASURING = ["applying", "measuring", "profiling", "proving"];
const ALONE =
  "A click on a point chooses it: panel.recipe is what is chosen, panel.chosen its place.";
const IN_BENCH =
  "A click on a point makes its formats the recipe; what they really do is measured then.";
const ALLOCATION_FOLLOWS = ["chosen", "state", "requests", "served"];

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function allocation(root, host, model) {
  return new AllocationView(root, host, model);
}

class AllocationView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    this.host = host;
    this.model = model;
    this.id = freshId("allocation");
    this.table = unpackedAllocation({});
    /** @type {AllocationDot[]} */
    this.dots = [];
    /** @type {import("./layout.js").AllocationFrame | null} */
    this.frame = null;
    this.pointed = NONE;
    this.described = "";
    this.drawn = "";
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
    this.prediction = new PredictionTable("the chosen point, predicted and achieved");
    this.notes = h("div", { class: "pf-allocation-notes" });
    const { fields, budget } = budgetFields();
    this.question = new Question(model, host.ask, QUESTION, { fields, options: budget });
    this.head = h(
      "div",
      { class: "pf-view-head" },
      h("div", { class: "pf-heat-titles" }, this.title, this.reason),
      this.legend,
    );
    this.both = h("div", { class: "pf-allocation-both" }, this.plot, this.taken);
    root.append(
      h(
        "section",
        { class: "pf-view pf-allocation", "aria-label": "allocation of formats" },
        this.head,
        this.both,
        this.notes,
        this.question.element,
      ),
    );
    this.listen();
    this.release = onWidth(this.plot, (width) => this.draw(width));
  }

  listen() {
    this.onChange = () => this.follow();
    for (const name of ALLOCATION_FOLLOWS) this.model.on(`change:${name}`, this.onChange);
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
    this.pointed = NONE;
    this.described = "";
    const { isKnown, title, reason, notes } = this.table;
    fresh(this.title, title);
    fresh(this.reason, isKnown && reason);
    fresh(this.legend, isKnown && allocationLegend(this.table));
    fresh(this.notes, ...notes.map((note) => h("p", { class: "pf-note" }, note)));
    this.head.hidden = this.both.hidden = !isKnown;
    this.draw(this.plot.clientWidth);
    this.drawn = "";
    this.follow();
  }

  destroy() {
    this.release();
    for (const name of ALLOCATION_FOLLOWS) this.model.off(`change:${name}`, this.onChange);
  }

  get isInBench() {
    return Boolean(this.model.get("state"));
  }

  /**
   * The chosen point: of a pending request, else of the recipe, else of the trait.
   * @returns {number}
   */
  get chosen() {
    const asked = /** @type {any[]} */ (unserved(this.model))
      .filter((request) => request.do === "allocate")
      .at(-1);
    return asked?.point ?? this.model.get("state")?.allocated ?? this.model.get("chosen") ?? NONE;
  }

  /** The chosen point; until one is chosen, the one that meets what was asked for. */
  get shown() {
    return shownPoint(this.table, this.chosen);
  }

  /** Redraw after a change of the choice, the plan or the measurements. */
  follow() {
    this.question.show(this.table.isKnown);
    const key = JSON.stringify([this.chosen, this.isInBench, this.waiting]);
    if (key === this.drawn) return;
    this.drawn = key;
    this.mark();
  }

  /** The placeholder for the chosen point's measured values. */
  get waiting() {
    return MEASURING.includes(this.model.get("state")?.status) ? "being measured …" : "";
  }

  /** @param {number} width */
  draw(width) {
    if (!this.table.isKnown || width <= 0) return;
    const { table } = this;
    const frame = allocationFrame(width, table);
    this.frame = frame;
    this.dots = allocationDots(table, frame);
    const predicted = this.dots.filter((dot) => !dot.isAchieved);
    this.marks = predicted.map((dot) =>
      allocationMark(dot, `${this.id}-${dot.index}`, this.words(table.points[dot.index])),
    );
    const label =
      `${this.marks.length} choices of formats, the frontier first; ` +
      "arrow keys go through them, Enter chooses";
    set(this.drawing, {
      width,
      height: frame.height,
      viewBox: `0 0 ${width} ${frame.height}`,
      "aria-label": label,
    });
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

  /** Redraw only the rings, error bars and card of the pointed and the chosen point. */
  mark() {
    const { table, frame, dots } = this;
    if (!frame || !table.isKnown) return;
    const [pointed, shown] = [table.points[this.pointed], this.shown];
    fresh(
      this.overlay,
      ...(pointed ? pointedMarks(table, frame, dots, dots[this.pointed]) : []),
      shown && chosenRing(dots[shown.index], shown.index === this.chosen),
    );
    this.marks.forEach((mark, index) =>
      mark.setAttribute("aria-selected", String(index === this.chosen)),
    );
    set(this.drawing, { "aria-activedescendant": pointed && `${this.id}-${this.pointed}` });
    if (pointed)
      this.card.show(
        cardSpot(dots, this.pointed, frame.width),
        pointed.name,
        this.line(pointed),
        pointFigures(table, pointed),
      );
    else this.card.hide();
    this.taken.hidden = !shown;
    if (shown) this.tell(shown);
  }

  /** Show the chosen point's figures and formats. @param {AllocatedPoint} point */
  tell(point) {
    const isChosen = point.index === this.chosen;
    this.prediction.show(pointRows(this.table, point), isChosen ? this.waiting : "");
    const key = `${point.index} ${isChosen} ${this.isInBench}`;
    if (this.described === key) return;
    this.described = key;
    const take = h(
      "button",
      { type: "button", class: "pf-button", onclick: () => this.choose(point.index) },
      "Take this mixture",
    );
    fresh(
      this.taken,
      h("h3", {}, point.name, h("small", {}, standingWords(point, isChosen))),
      this.prediction.element,
      formatChips(point),
      this.isInBench && !isChosen && take,
      h("p", { class: "pf-note" }, this.isInBench ? IN_BENCH : ALONE),
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
    if (this.isInBench) this.host.ask({ do: "allocate", point: index });
    else {
      this.model.set("chosen", index);
      this.model.save_changes();
    }
    this.mark();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "Escape") this.point(NONE);
    else if (event.key === "Enter" || event.key === " ") this.choose(this.pointed);
    else if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End")
      this.point(indexAfterKey(event.key, this.pointed, this.marks.length));
    else return;
    event.preventDefault();
  }

  /** @param {PointerEvent} event */
  under(event) {
    const box = this.drawing.getBoundingClientRect();
    const nearest = nearestDot(
      /** @type {any[]} */ (this.dots),
      event.clientX - box.left,
      event.clientY - box.top,
    );
    return /** @type {AllocationDot | null} */ (/** @type {unknown} */ (nearest))?.index ?? NONE;
  }

  /** @param {AllocatedPoint} point */
  line(point) {
    return [
      formatWords(point),
      standingWords(point, point.index === this.chosen) || "a click chooses it",
    ]
      .filter(Boolean)
      .join(" · ");
  }

  /** @param {AllocatedPoint} point */
  words(point) {
    return [
      point.name,
      formatWords(point),
      ...pointFigures(this.table, point).map(([value, name]) => `${value} ${name}`),
    ].join(", ");
  }
}
