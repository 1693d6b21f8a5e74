/**
 * The group coupled to a layer's channels: which weights lose rows or columns, or why none can be
 * removed.
 */

import { byLayer, unitsText } from "./table.js";
import { fresh, h } from "../shared/dom.js";

/** @typedef {import("./table.js").ChannelGroup} ChannelGroup */

export class GroupCard {
  /** @param {(layer: string) => void} onLayer */
  constructor(onLayer) {
    this.onLayer = onLayer;
    this.drawn = "";
    this.element = h("section", { class: "pf-group-card", "aria-label": "what goes together" });
  }

  /**
   * @param {ChannelGroup[]} groups @param {number[]} kept units of each @param {string} layer the
   * chosen one
   */
  show(groups, kept, layer) {
    const key = JSON.stringify([groups.map((group) => group.name), kept, layer]);
    if (key === this.drawn) return;
    this.drawn = key;
    fresh(
      this.element,
      ...groups.flatMap((group, index) => this.group(group, kept[index] ?? group.width, layer)),
    );
  }

  /** @param {string} sentence */
  say(sentence) {
    this.drawn = sentence;
    fresh(this.element, h("p", { class: "pf-note" }, sentence));
  }

  /** @param {ChannelGroup} group @param {number} kept @param {string} layer */
  group(group, kept, layer) {
    const head = h(
      "h4",
      {},
      group.pinned ? "Stays whole: " : "Goes together: ",
      h("b", {}, group.pinned || unitsText(group, kept)),
    );
    const [readers, producers] = [
      group.members.filter((member) => member.kind === "columns"),
      group.members.filter((member) => member.kind !== "columns"),
    ];
    return [head, this.part("made by", producers, layer), this.part("read by", readers, layer)];
  }

  /**
   * @param {string} what @param {import("./table.js").GroupMember[]} members @param {string} layer
   */
  part(what, members, layer) {
    if (!members.length) return null;
    const items = byLayer(members).map(([name, parameters]) =>
      h("li", {}, this.member(name, parameters, layer)),
    );
    return h(
      "div",
      { class: "pf-group-part" },
      h("span", { class: "pf-lead" }, what),
      h("ul", {}, ...items),
    );
  }

  /** @param {string} name @param {string[]} parameters @param {string} layer */
  member(name, parameters, layer) {
    const attributes = {
      type: "button",
      title: parameters.join(", "),
      "aria-current": name === layer && "true",
      onclick: () => this.onLayer(name),
    };
    return h("button", attributes, name || "the model", h("small", {}, parameters.join(" · ")));
  }
}
