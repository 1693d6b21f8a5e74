/** The allocation view: the frontier of formats, and the chosen point, predicted and achieved. */

import { budgetFields } from "./budget_form.js";
import { fresh, h } from "../shared/dom.js";
import { unserved } from "../shared/host.js";
import { unpackedPicture } from "../shared/picture.js";
import { PictureSheet } from "../shared/picture_view.js";
import { PredictionTable } from "../shared/prediction_table.js";
import { Question } from "../shared/question.js";

/**
 * @typedef {{ name: string, formats: [format: string, layers: string][], around: string,
 *   rows: import("../shared/prediction_table.js").PredictionRow[] }} Point
 */

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
const FOLLOWED = ["chosen", "state", "requests", "served"];

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
    /** @type {Point[]} */
    this.points = [];
    this.best = NONE;
    this.drawn = "";
    this.sheet = new PictureSheet(host, { choose: (key) => this.choose(Number(key)) });
    this.taken = h("div", { class: "pf-taken", role: "status" });
    this.prediction = new PredictionTable("the chosen point, predicted and achieved");
    const { fields, budget } = budgetFields();
    this.question = new Question(model, host.ask, QUESTION, { fields, options: budget });
    this.both = h("div", { class: "pf-allocation-both" }, this.sheet.element, this.taken);
    const named = { class: "pf-view pf-allocation", "aria-label": "allocation of formats" };
    root.append(h("section", named, this.both, this.question.element));
    this.onChange = () => this.follow();
    for (const name of FOLLOWED) model.on(`change:${name}`, this.onChange);
  }

  /** @param {any} data */
  show(data) {
    const picture = unpackedPicture(data.picture);
    this.points = data.points ?? [];
    this.best = data.best ?? NONE;
    this.both.hidden = !picture;
    if (picture) this.sheet.show(picture);
    this.drawn = "";
    this.follow();
  }

  destroy() {
    this.sheet.destroy();
    for (const name of FOLLOWED) this.model.off(`change:${name}`, this.onChange);
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

  /** Show the choice after a change of it, of the plan or of the measurements. */
  follow() {
    this.question.show(this.points.length > 0);
    const { chosen, isInBench } = this;
    const status = this.model.get("state")?.status;
    const waiting = MEASURING.includes(status) ? "being measured …" : "";
    const key = JSON.stringify([chosen, isInBench, waiting]);
    if (key === this.drawn) return;
    this.drawn = key;
    this.sheet.select(chosen === NONE ? "" : String(chosen));
    // until one is chosen, the best for what was asked
    const index = chosen in this.points ? chosen : this.best;
    const point = this.points[index];
    this.taken.hidden = !point;
    if (!point) return;
    const isChosen = index === chosen;
    this.prediction.show(point.rows, isChosen ? waiting : "");
    const standing = [isChosen && "chosen", index === this.best && "best for what was asked"];
    const look = { type: "button", class: "pf-button", onclick: () => this.choose(index) };
    fresh(
      this.taken,
      h("h3", {}, point.name, h("small", {}, standing.filter(Boolean).join(", and "))),
      this.prediction.element,
      formatChips(point),
      isInBench && !isChosen && h("button", look, "Take this mixture"),
      h("p", { class: "pf-note" }, isInBench ? IN_BENCH : ALONE),
    );
  }

  /** @param {number} index */
  choose(index) {
    if (index === this.chosen) return;
    if (this.isInBench) this.host.ask({ do: "allocate", point: index });
    else {
      this.model.set("chosen", index);
      this.model.save_changes();
    }
    this.follow();
  }
}

/** The formats of a point, and how many layers have each. @param {Point} point */
function formatChips({ formats, around }) {
  const chips = formats.map(([format, layers]) =>
    h("li", { class: "pf-recipe-chip" }, format, h("small", {}, layers)),
  );
  return h(
    "ul",
    { class: "pf-format-chips" },
    ...chips,
    around && h("li", { class: "pf-note" }, around),
  );
}
