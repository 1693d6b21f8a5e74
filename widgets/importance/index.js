/**
 * The importance view: the bars of one layer with its threshold, and how much of each layer is
 * kept.
 */

import { fresh, h } from "../shared/dom.js";
import { Question } from "../shared/question.js";
import { removedShares } from "./cut_choice.js";
import { widthsAfter } from "./cut_cost.js";
import { GroupCard } from "../coupling/group_card.js";
import { cutByLine } from "./choice.js";
import { ChannelChoice } from "./gesture.js";
import { importanceLine, unpackedImportance } from "./table.js";
import { KeptBars } from "./kept_bars.js";

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
const [TALL, LOW] = [230, 210]; // in pixels: the workbench has more room
const FOLLOWED = ["state", "requests", "served", "kept", "views"];

class ImportanceView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    this.host = host;
    this.model = model;
    this.table = unpackedImportance({});
    this.layer = "";
    this.title = h("h2", {});
    this.line = h("p", { class: "pf-note" });
    this.unit = h("p", { class: "pf-note" });
    this.cutBy = h("p", { class: "pf-note pf-importance-cut-by" });
    this.status = h("p", { class: "pf-note pf-importance-said", role: "status" });
    this.question = new Question(model, host.ask, QUESTION);
    this.layerChoice = new ChannelChoice(
      host,
      model,
      (row, kept) => this.bars.tell(row, kept),
      this.isInBench ? TALL : LOW,
    );
    this.bars = new KeptBars({
      onLayer: (layer) => this.host.select(layer),
      onLive: (threshold, kept) => this.layerChoice.tellAll(threshold, kept),
      onSettle: (threshold, kept) => this.layerChoice.settleAll(threshold, kept),
    });
    this.heading = h("h3", {});
    this.group = new GroupCard((layer) => this.host.select(layer));
    const left = h(
      "div",
      { class: "pf-importance-one" },
      this.heading,
      this.layerChoice.element,
      this.group.element,
    );
    const right = h(
      "div",
      { class: "pf-importance-all" },
      this.layerChoice.forecast.element,
      h("h3", {}, "All layers"),
      this.bars.element,
    );
    this.both = h("div", { class: "pf-importance-both" }, left, right);
    this.head = h(
      "div",
      { class: "pf-view-head" },
      h("div", { class: "pf-heat-titles" }, this.title, this.line),
    );
    root.append(
      h(
        "section",
        { class: "pf-view pf-importance", "aria-label": "importance of channels" },
        this.head,
        this.both,
        this.unit,
        this.cutBy,
        this.status,
        this.question.element,
      ),
    );
    this.drawn = "";
    this.onChange = () => this.follow();
    for (const name of FOLLOWED) model.on(`change:${name}`, this.onChange);
    this.follow();
  }

  /** @param {any} data */
  show(data) {
    this.table = unpackedImportance(data);
    const { isKnown, title, unit } = this.table;
    fresh(this.title, title);
    fresh(this.line, isKnown && importanceLine(this.table));
    fresh(this.unit, isKnown && unit);
    this.head.hidden = this.both.hidden = this.unit.hidden = !isKnown;
    this.layerChoice.take(this.table);
    this.select(this.layer);
    this.follow();
  }

  /** @param {string} layer */
  select(layer) {
    const isThere = this.table.place.has(layer);
    if (isThere || !this.table.place.has(this.layer))
      this.layer = isThere ? layer : this.firstLayer();
    const row = this.table.place.get(this.layer) ?? -1;
    fresh(this.heading, this.layer, row >= 0 && h("small", {}, this.table.kind[row]));
    this.layerChoice.choose(this.layer);
    this.bars.select(this.layer);
    this.showGroup();
  }

  destroy() {
    for (const name of FOLLOWED) this.model.off(`change:${name}`, this.onChange);
    this.layerChoice.destroy();
    this.bars.destroy();
  }

  /** The first whose channels can go, so that there is something to drag. */
  firstLayer() {
    const { layers, sorted, isAnswer } = this.table;
    return (
      layers.find((_, row) => sorted[row].value.length > 1 && !isAnswer[row]) ?? layers[0] ?? ""
    );
  }

  /** Show the groups coupled to the layer's channels, if known. */
  showGroup() {
    const { coupling, cost } = this.layerChoice.forecast;
    this.group.element.hidden = !coupling.isKnown || !this.table.isKnown;
    if (this.group.element.hidden) return;
    const places = coupling.groupsMadeBy.get(this.layer) ?? [];
    const kept = cost ? widthsAfter(cost, removedShares(this.model, this.table, null)) : [];
    if (places.length)
      this.group.show(
        places.map((place) => coupling.groups[place]),
        places.map((place) => kept[place]),
        this.layer,
      );
    else
      this.group.say(
        "Its channels were in no group: nothing of it was seen to run, or it makes none.",
      );
  }

  get isInBench() {
    return Boolean(this.model.get("state"));
  }

  /** Show the choice, and how far the query is. */
  follow() {
    this.layerChoice.follow();
    this.bars.show(this.table, this.layerChoice.kept);
    this.showGroup();
    const isKnown = this.table.isKnown;
    this.question.show(isKnown);
    const cutBy = isKnown ? cutByLine(this.model, this.table) : "";
    const key = JSON.stringify([this.isInBench, isKnown, cutBy]);
    if (key === this.drawn) return;
    this.drawn = key;
    fresh(this.cutBy, cutBy);
    this.cutBy.hidden = !cutBy;
    fresh(
      this.status,
      this.isInBench || !isKnown
        ? ""
        : "panel.kept is the number of channels kept per layer, panel.recipe removes the others.",
    );
  }
}
