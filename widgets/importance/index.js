/**
 * The importance view: the channels of one layer with its threshold, and how much of each layer is
 * kept.
 */

import { GroupCard } from "../coupling/group_card.js";
import { unpackedCoupling } from "../coupling/table.js";
import { fresh, h } from "../shared/dom.js";
import { Question } from "../shared/question.js";
import { isSameData } from "../shared/same_data.js";
import { AllLayers } from "./all_layers.js";
import { ChannelChoice } from "./channel_choice.js";

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function importance(root, host, model) {
  return new ImportanceView(root, host, model);
}

const QUESTION = {
  query: "importance",
  request: "importance",
  question: "How much does each channel matter?",
  use: "The channels that matter least can go: drag a threshold, and see what that would save first.",
};
const FOLLOWED = ["state", "requests", "served", "cut", "views"];
const ALONE =
  "panel.kept is the number of channels kept per layer, panel.recipe removes the others.";
const IN_NO_GROUP =
  "Its channels were in no group: nothing of it was seen to run, or it makes none.";

class ImportanceView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    this.model = model;
    this.data = /** @type {any} */ (null);
    this.layer = "";
    this.coupled = /** @type {any} */ (null);
    this.coupling = unpackedCoupling({});
    this.title = h("h2", {});
    this.line = h("p", { class: "pf-note" });
    this.unit = h("p", { class: "pf-note" });
    this.cutBy = h("p", { class: "pf-note pf-importance-cut-by" });
    this.status = h("p", { class: "pf-note pf-importance-said", role: "status" });
    this.question = new Question(model, host.ask, QUESTION);
    this.choice = new ChannelChoice(host, model);
    this.all = new AllLayers(host, model);
    this.heading = h("h3", {});
    this.group = new GroupCard((layer) => host.select(layer));
    const one = [this.heading, this.choice.element, this.group.element];
    const all = [this.choice.forecast, h("h3", {}, "All layers"), this.all.element];
    this.both = h(
      "div",
      { class: "pf-importance-both" },
      h("div", { class: "pf-importance-one" }, ...one),
      h("div", { class: "pf-importance-all" }, ...all),
    );
    const titles = h("div", { class: "pf-heat-titles" }, this.title, this.line);
    this.head = h("div", { class: "pf-view-head" }, titles);
    const below = [this.unit, this.cutBy, this.status, this.question.element];
    const view = { class: "pf-view pf-importance", "aria-label": "importance of channels" };
    root.append(h("section", view, this.head, this.both, ...below));
    this.onChange = () => this.follow();
    for (const name of FOLLOWED) model.on(`change:${name}`, this.onChange);
    this.follow();
  }

  /** @param {any} data */
  show(data) {
    this.data = data?.picture ? data : null;
    const picture = this.data?.picture;
    fresh(this.title, picture?.title);
    fresh(this.line, picture?.note);
    fresh(this.unit, picture?.sentence);
    this.head.hidden = this.both.hidden = this.unit.hidden = !picture;
    this.choice.take(this.data);
    this.all.take(this.data);
    this.select(this.layer);
    this.follow();
  }

  /** The selected layer; until there is one, the first whose channels can go. @param {string} layer */
  select(layer) {
    const { pictures } = this.choice;
    if (pictures.has(layer)) this.layer = layer;
    else if (!pictures.has(this.layer)) this.layer = [...pictures.keys()][0] ?? "";
    this.choice.choose(this.layer);
    fresh(this.heading, this.layer, h("small", {}, this.choice.picture?.sentence));
    this.all.select(this.layer);
    this.showGroup();
  }

  destroy() {
    for (const name of FOLLOWED) this.model.off(`change:${name}`, this.onChange);
    this.choice.destroy();
    this.all.destroy();
  }

  /** The groups of the layer's channels, if they are known. */
  showGroup() {
    const data = this.model.get("views")?.coupling;
    if (!isSameData(data, this.coupled)) this.coupling = unpackedCoupling(data);
    this.coupled = data;
    this.group.element.hidden = !this.coupling.isKnown || !this.data;
    if (this.group.element.hidden) return;
    const places = this.coupling.groupsMadeBy.get(this.layer) ?? [];
    const groups = places.map((place) => this.coupling.groups[place]);
    const kept = places.map((place) => this.model.get("cut")?.widths?.[place]);
    if (places.length) this.group.show(groups, kept, this.layer);
    else this.group.say(IN_NO_GROUP);
  }

  /** Show the choice, and how far the query is. */
  follow() {
    this.choice.follow();
    this.all.follow();
    this.showGroup();
    this.question.show(Boolean(this.data));
    const state = this.model.get("state");
    const cutBy = this.data && (state?.cut_by || this.data.cut_by);
    for (const [line, text] of [
      [this.cutBy, cutBy],
      [this.status, this.data && !state && ALONE],
    ]) {
      if (line.textContent !== (text || "")) fresh(line, text);
      line.hidden = !text;
    }
  }
}
