/** The options of a search: goal, allowed loss, may it train, seconds. */

import { fresh, h } from "../shared/dom.js";
import { rovingTabindex } from "../shared/roving_tabindex.js";
import { metricWord } from "./layout.js";

/** @typedef {{ goal: string, metric_drop: number, may_train: boolean, seconds: number }} Choice */

const GOALS = [
  ["latency", "Latency"],
  ["size", "Size"],
  ["memory", "Memory"],
  ["throughput", "Throughput"],
];
const ANSWERS = [
  ["no", "No"],
  ["yes", "Yes"],
];

export class SearchForm {
  /** @param {(choice: Choice) => void} search @param {() => void} stop */
  constructor(search, stop) {
    /** @type {Choice} */
    this.choice = { goal: "latency", metric_drop: 0.01, may_train: false, seconds: 60 };
    this.hasMetric = false;
    this.metricName = /** @type {string | null} */ (null);
    this.isSearching = false;
    this.goal = segments("Goal", GOALS, (name) => this.set({ goal: name }));
    this.train = segments("May it train?", ANSWERS, (name) =>
      this.set({ may_train: name === "yes" }),
    );
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
      this.goal.element,
      h("label", {}, this.lossName, this.loss),
      this.train.element,
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
    const value = Math.max(0, Number(this.loss.value) || 0);
    this.set({ metric_drop: Math.min(1, this.hasMetric ? value / 100 : value) });
  }

  /**
   * @param {{ can_train: boolean, has_metric: boolean, metric_name: string | null }} facts
   * @param {boolean} isSearching
   */
  follow(facts, isSearching) {
    this.hasMetric = facts.has_metric;
    this.metricName = facts.metric_name;
    this.isSearching = isSearching;
    this.train.element.hidden = !facts.can_train;
    this.draw();
  }

  /** @param {boolean} isAgain */
  name(isAgain) {
    fresh(this.button, this.isSearching ? "Stop" : isAgain ? "Search again" : "Search");
  }

  draw() {
    this.goal.show(this.choice.goal);
    this.train.show(this.choice.may_train ? "yes" : "no");
    const metric = `${metricWord(this.metricName)} I can lose, points`;
    fresh(this.lossName, this.hasMetric ? metric : "Output may differ by");
    const drop = this.choice.metric_drop;
    if (document.activeElement !== this.loss)
      this.loss.value = String(Number((this.hasMetric ? 100 * drop : drop).toPrecision(3)));
    this.loss.step = this.hasMetric ? "0.1" : "0.001";
    if (document.activeElement !== this.seconds) this.seconds.value = String(this.choice.seconds);
  }
}

/** @param {string} min @param {string} step */
function field(min, step) {
  const input = h("input", { type: "number", min, step, class: "pf-faster-number" });
  return /** @type {HTMLInputElement} */ (input);
}

/**
 * A row of choices of which one is pressed.
 * @param {string} label @param {string[][]} names @param {(name: string) => void} choose
 */
function segments(label, names, choose) {
  const box = h("div", { class: "pf-segmented", role: "radiogroup", "aria-label": label });
  const stopAt = rovingTabindex(box, "button");
  const buttons = names.map(([name, text]) => {
    const take = () => choose(name);
    return h("button", { type: "button", role: "radio", onclick: take, onfocus: take }, text);
  });
  fresh(box, ...buttons);
  return {
    element: h("div", { class: "pf-faster-field" }, h("span", {}, label), box),
    /** @param {string} chosen */
    show(chosen) {
      buttons.forEach((button, index) =>
        button.setAttribute("aria-checked", String(names[index][0] === chosen)),
      );
      stopAt(buttons[names.findIndex(([name]) => name === chosen)] ?? null);
    },
  };
}
