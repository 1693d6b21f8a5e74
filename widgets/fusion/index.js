/**
 * The fusion view: which sites are fused or not, why, and their speed-up; in the workbench each
 * site has a switch.
 */

import { fresh, h } from "../shared/dom.js";
import { filterField } from "../shared/filter_field.js";
import { fusionChoice } from "./choice.js";
import { FusionGrid } from "./grid.js";
import { fusionTable } from "./table.js";
import { isField, isPlainKey } from "../shared/grid_keys.js";
import { Question } from "../shared/question.js";
import { showPress } from "../shared/press.js";

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function fusion(root, host, model) {
  return new FusionView(root, host, model);
}

const QUESTION = {
  query: "fusion",
  request: "fusion",
  question: "Which layers can run as one, and what does that save?",
  use: "Layers that are joined write less to memory in between; each place gets a switch.",
};
const FUSION_FOLLOWS = ["state", "requests", "served"];
const NOTHING_TOLD =
  "A row shows its reasons here; each place is timed by itself, " +
  "so the times do not add up to the model's.";

class FusionView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    this.host = host;
    this.model = model;
    this.table = fusionTable({});
    this.drawn = "";
    this.title = h("h2", {});
    this.line = h("p", { class: "pf-note", role: "status" });
    this.grid = new FusionGrid({
      onSwitch: (place, isOn) => this.host.ask({ do: "fuse", place, is_on: isOn }),
      onChoose: (layer, isPassing) => this.point(layer, isPassing),
      onShown: (shown, all) => this.field.count(shown, all),
      choice: () => this.choice,
      hasSwitches: this.isInBench,
    });
    this.choice = fusionChoice(model, this.table);
    this.field = filterField({
      onChange: (query) => this.grid.filter(query),
      onLeave: (isChosen) => (isChosen ? this.grid.enter() : this.grid.element.focus()),
    });
    this.details = h("p", { class: "pf-note pf-fusion-said" });
    this.question = new Question(model, host.ask, QUESTION);
    this.all = h(
      "button",
      {
        type: "button",
        class: "pf-button",
        title: "join (fuse) every place that gains; what was switched off by hand too",
        onclick: () => this.askAll(true),
      },
      "Join all that gain",
    );
    this.none = h(
      "button",
      {
        type: "button",
        class: "pf-button",
        title: "take the whole step out of the recipe",
        onclick: () => this.askAll(false),
      },
      "Join none",
    );
    this.actions = h("div", { class: "pf-fusion-actions" }, this.all, this.none);
    const titles = h("div", { class: "pf-heat-titles" }, this.title, this.line);
    this.tools = h("div", { class: "pf-fusion-tools" }, this.actions, this.field.element);
    this.head = h("div", { class: "pf-view-head" }, titles, this.tools);
    this.element = h(
      "section",
      { class: "pf-view pf-fusion", "aria-label": "joined layers" },
      this.head,
      this.grid.element,
      this.details,
      this.question.element,
    );
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    root.append(this.element);
    this.onChange = () => this.follow();
    for (const name of FUSION_FOLLOWS) model.on(`change:${name}`, this.onChange);
    this.follow();
  }

  /** @param {any} data */
  show(data) {
    this.table = fusionTable(data);
    const { isKnown, title, places } = this.table;
    fresh(this.title, title);
    this.grid.element.hidden = this.details.hidden = !places.length;
    this.tools.hidden = !places.length;
    this.head.hidden = !isKnown;
    this.choice = fusionChoice(this.model, this.table);
    this.grid.show(this.table);
    this.select(this.host.selected() ?? "");
    this.drawn = "";
    this.follow();
  }

  /** @param {string} layer */
  select(layer) {
    this.grid.select(layer);
    this.tell();
  }

  destroy() {
    for (const name of FUSION_FOLLOWS) this.model.off(`change:${name}`, this.onChange);
    this.grid.destroy();
  }

  get isInBench() {
    return Boolean(this.model.get("state"));
  }

  /** Redraw after a change of the fused sites. */
  follow() {
    const { isInBench, table } = this;
    this.question.show(table.isKnown);
    this.choice = fusionChoice(this.model, table);
    const { on, asked, hasStep } = this.choice;
    const line = this.model.get("state")?.fused?.summary || table.summary;
    const key = JSON.stringify([[...on], [...asked], hasStep, isInBench, line]);
    if (key === this.drawn) return;
    this.drawn = key;
    fresh(this.line, line);
    this.actions.hidden = !isInBench;
    const left = table.places.some((site) => site.can_gain && !on.has(site.layers[0]));
    showPress(this.all, left, asked.size > 1);
    showPress(this.none, hasStep, false);
    this.grid.refresh();
    this.tell();
  }

  /** The line under the table. */
  tell() {
    const site = this.grid.described;
    if (site)
      fresh(
        this.details,
        h("b", {}, site.layers.join(" + ")),
        ` ${(this.grid.isOn(site) ? site.on : site.off).sentence}`,
      );
    else fresh(this.details, NOTHING_TOLD);
  }

  /** @param {string} layer @param {boolean} isPassing */
  point(layer, isPassing) {
    this.tell();
    if (!isPassing) this.host.select(layer);
  }

  /** @param {boolean} isOn */
  askAll(isOn) {
    const button = isOn ? this.all : this.none;
    if (button.getAttribute("aria-disabled") !== "true")
      this.host.ask({ do: "fuse_all", is_on: isOn });
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (event.key !== "/" || !isPlainKey(event) || isField(event.target) || this.tools.hidden)
      return;
    event.preventDefault();
    event.stopPropagation();
    this.field.focus();
  }
}
