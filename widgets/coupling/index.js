/** The coupling view: every group of channels with its units, and the members of the chosen one. */

import { freshId, indexAfterKey } from "../shared/chart.js";
import { unitsText, unpackedCoupling } from "./table.js";
import { fresh, h, set } from "../shared/dom.js";
import { GroupCard } from "./group_card.js";
import { scrolledTo } from "../shared/row_window.js";

const GROUP_ROW = 22;

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @returns
 * {import("../shared/host.js").View}
 */
export function coupling(root, host) {
  return new CouplingView(root, host);
}

class CouplingView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host */
  constructor(root, host) {
    this.host = host;
    this.id = freshId("groups");
    this.table = unpackedCoupling({});
    this.layer = "";
    this.at = -1;
    /** @type {HTMLElement[]} */
    this.rows = [];
    this.title = h("h2", {});
    this.empty = h(
      "p",
      { class: "pf-empty" },
      "Which channels go together has not been determined yet.",
    );
    this.list = h("ul", {
      class: "pf-group-list",
      role: "listbox",
      tabindex: "0",
      "aria-label": "groups of channels",
    });
    this.card = new GroupCard((layer) => host.select(layer));
    this.both = h("div", { class: "pf-group-both" }, this.list, this.card.element);
    root.append(
      h(
        "section",
        { class: "pf-view pf-coupling", "aria-label": "channels that go together" },
        h("div", { class: "pf-view-head" }, this.title),
        this.empty,
        this.both,
      ),
    );
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("click", (event) =>
      this.choose(
        this.rows.indexOf(
          /** @type {HTMLElement} */ (/** @type {HTMLElement} */ (event.target).closest("li")),
        ),
      ),
    );
  }

  /** @param {any} data */
  show(data) {
    this.table = unpackedCoupling(data);
    fresh(this.title, this.table.title || "Which channels go together");
    this.empty.hidden = this.table.isKnown;
    this.both.hidden = !this.table.isKnown;
    this.rows = this.table.groups.map((group, index) => this.row(group, index));
    fresh(this.list, ...this.rows);
    this.at = -1;
    this.select(this.layer);
  }

  /** The first group that the layer makes, else that it reads. @param {string} layer */
  select(layer) {
    this.layer = layer;
    const { groups, groupsMadeBy } = this.table;
    const index = groupsMadeBy.get(layer)?.includes(this.at)
      ? this.at
      : (groupsMadeBy.get(layer)?.[0] ??
        groups.findIndex((group) => group.members.some((member) => member.layer === layer)));
    this.point(index >= 0 ? index : Math.max(this.at, groups.length ? 0 : -1));
  }

  /** @param {import("./table.js").ChannelGroup} group @param {number} index */
  row(group, index) {
    const units = h("span", { class: "pf-group-units" }, unitsText(group));
    const weights = h(
      "span",
      { class: "pf-group-units" },
      `${group.members.length} ${group.members.length === 1 ? "weight" : "weights"}`,
    );
    const note = h("span", { class: "pf-text pf-nothing" }, group.pinned);
    return h(
      "li",
      {
        role: "option",
        id: `${this.id}-${index}`,
        class: group.pinned ? "pf-kept-fixed" : "",
        title: [group.name, group.pinned].filter(Boolean).join(": "),
      },
      h("span", { class: "pf-text" }, group.name),
      units,
      weights,
      note,
    );
  }

  /** @param {number} index */
  point(index) {
    this.at = index;
    this.rows.forEach((row, at) => row.setAttribute("aria-selected", String(at === index)));
    set(this.list, { "aria-activedescendant": index >= 0 && `${this.id}-${index}` });
    if (index < 0) return;
    this.list.scrollTop = scrolledTo(this.list.scrollTop, this.list.clientHeight, GROUP_ROW, index);
    this.card.show([this.table.groups[index]], [], this.layer);
  }

  /** @param {number} index */
  choose(index) {
    if (index < 0) return;
    this.point(index);
    this.host.select(
      this.table.groups[index].members.find((member) => member.kind === "rows")?.layer ?? "",
    );
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const next = indexAfterKey(event.key, this.at, this.rows.length);
    if (next === this.at || next < 0 || event.key === "ArrowLeft" || event.key === "ArrowRight")
      return;
    event.preventDefault();
    this.choose(next);
  }
}
