/** The options of a search: goal, allowed loss, may it train, seconds. */

import { fresh, h } from "../shared/dom.js";
import { segmentedControl } from "../shared/segments.js";

/** @typedef {{ goal: string, metric_drop: number, may_train: boolean, seconds: number }} Choice */

const GOALS = /** @type {[string, string][]} */ ([
  ["latency", "Latency"],
  ["size", "Size"],
  ["memory", "Memory"],
  ["throughput", "Throughput"],
]);
const ANSWERS = /** @type {[string, string][]} */ ([
  ["no", "No"],
  ["yes", "Yes"],
]);

export class SearchForm {
  /** @param {(choice: Choice) => void} search @param {() => void} stop */
  constructor(search, stop) {
    /** @type {Choice} */
    this.choice = { goal: "latency", metric_drop: 0.01, may_train: false, seconds: 60 };
    this.inPoints = false;
    this.isBounded = true;
    this.isSearching = false;
    this.goal = segmentedControl("Goal", GOALS, (goal) => this.set({ goal }));
    this.train = segmentedControl("May it train?", ANSWERS, (name) =>
      this.set({ may_train: name === "yes" }),
    );
    this.training = named("May it train?", this.train.element);
    this.loss = field("0", "0.1");
    this.loss.addEventListener("change", () => this.readLoss());
    this.lossName = h("span", {}, "");
    this.seconds = field("1", "1");
    this.seconds.addEventListener("change", () =>
      this.set({ seconds: Math.max(1, Number(this.seconds.value) || 60) }),
    );
    this.button = h("button", { type: "button", class: "pf-button pf-search" }, "Search");
    this.button.addEventListener("click", () => (this.isSearching ? stop() : search(this.choice)));
    this.element = h(
      "div",
      { class: "pf-faster-form" },
      named("Goal", this.goal.element),
      h("label", {}, this.lossName, this.loss),
      this.training,
      h("label", {}, h("span", {}, "Search for, s"), this.seconds),
      this.button,
    );
    this.draw();
  }

  /** @param {Partial<Choice>} changes */
  set(changes) {
    this.choice = { ...this.choice, ...changes };
    this.draw();
  }

  readLoss() {
    const value = Math.max(0, Number(this.loss.value) || 0) / (this.inPoints ? 100 : 1);
    this.set({ metric_drop: this.isBounded ? Math.min(1, value) : value });
  }

  /**
   * @param {{ can_train?: boolean, in_points?: boolean, is_bounded?: boolean, loss_label?: string }} facts
   * @param {boolean} isSearching @param {boolean} isAgain
   */
  follow({ can_train, in_points, is_bounded, loss_label }, isSearching, isAgain) {
    this.inPoints = Boolean(in_points);
    this.isBounded = Boolean(is_bounded);
    this.isSearching = isSearching;
    this.training.hidden = !can_train;
    fresh(this.lossName, loss_label);
    fresh(this.button, isSearching ? "Stop" : isAgain ? "Search again" : "Search");
    this.draw();
  }

  draw() {
    this.goal.show(this.choice.goal);
    this.train.show(this.choice.may_train ? "yes" : "no");
    const drop = this.choice.metric_drop;
    if (document.activeElement !== this.loss)
      this.loss.value = String(Number((this.inPoints ? 100 * drop : drop).toPrecision(3)));
    this.loss.step = this.inPoints ? "0.1" : "0.001";
    if (document.activeElement !== this.seconds) this.seconds.value = String(this.choice.seconds);
  }
}

/** @param {string} min @param {string} step */
function field(min, step) {
  const input = h("input", { type: "number", min, step, class: "pf-faster-number" });
  return /** @type {HTMLInputElement} */ (input);
}

/** @param {string} label @param {HTMLElement} control */
function named(label, control) {
  return h("div", {}, h("span", {}, label), control);
}
