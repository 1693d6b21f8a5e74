/** The tabs of the workbench: the layer table first, then whatever views there is data for. */

import { allocation } from "../allocation/index.js";
import { attention } from "../attention/index.js";
import { comparison } from "../comparison/index.js";
import { curve } from "../curve/index.js";
import { fresh, h } from "../shared/dom.js";
import { explanation } from "../explanation/index.js";
import { fusion } from "../fusion/index.js";
import { hardware } from "../hardware/index.js";
import { importance } from "../importance/index.js";
import { roofline } from "../roofline/index.js";
import { roving } from "../shared/roving_tabindex.js";
import { sensitivity } from "../sensitivity/index.js";
import { sideBySide } from "../side_by_side/index.js";
import { isSameData } from "../shared/same_data.js";

/** @typedef {import("../shared/host.js").View} View */

/**
 * In the order of the tabs; a wide one is not about one layer, and takes the room of the detail.
 * @type {Record<string, { label: string, make: import("../shared/host.js").MakeView, isWide?: boolean }>}
 */
const TAB_VIEWS = {
  sensitivity: { label: "Sensitivity", make: sensitivity, isWide: true },
  allocation: { label: "Frontier", make: allocation, isWide: true },
  importance: { label: "Importance", make: importance, isWide: true },
  fusion: { label: "Fusion", make: fusion, isWide: true },
  attention: { label: "Attention", make: attention, isWide: true },
  roofline: { label: "Roofline", make: roofline },
  comparison: { label: "Comparison", make: comparison, isWide: true },
  side_by_side: { label: "Layer by layer", make: sideBySide },
  curve: { label: "Batch size", make: curve, isWide: true },
  explanation: { label: "Why not faster", make: explanation, isWide: true },
  hardware: { label: "Hardware", make: hardware, isWide: true },
};

export const FIRST_TAB = "layers";

/** The tabs that there are, the layers first. @param {Record<string, any> | null | undefined} views @returns {string[]} */
export function tabNames(views) {
  return [FIRST_TAB, ...Object.keys(TAB_VIEWS).filter((name) => views?.[name])];
}

export class BenchTabs {
  /**
   * @param {HTMLElement} table what the first tab shows @param {import("../shared/host.js").Host} host @param {any} model
   * @param {(name: string, isWide: boolean) => void} onOpen
   */
  constructor(table, host, model, onOpen) {
    this.onOpen = onOpen;
    this.host = host;
    this.model = model;
    this.id = `pf-tab-${Math.random().toString(36).slice(2)}`;
    /** @type {Record<string, any>} */
    this.data = {};
    /** @type {Map<string, View>} */
    this.views = new Map();
    /** What each view was last given. @type {Map<string, any>} */
    this.given = new Map();
    this.current = FIRST_TAB;
    this.names = "";
    this.bar = h("div", { class: "pf-tabs", role: "tablist", "aria-label": "views" });
    this.stopAt = roving(this.bar, "button");
    this.pages = h("div", { class: "pf-pages" });
    /** @type {Map<string, HTMLElement>} */
    this.page = new Map();
    this.addPage(FIRST_TAB).append(table);
    this.show({});
  }

  /** @param {Record<string, any> | null | undefined} data of the views by name */
  show(data) {
    this.data = data ?? {};
    const names = tabNames(this.data).join();
    if (names !== this.names) this.build(tabNames(this.data));
    this.names = names;
    this.open(names.split(",").includes(this.current) ? this.current : FIRST_TAB);
  }

  /** @param {string} name */
  open(name) {
    this.current = name;
    for (const [one, page] of this.page) page.hidden = one !== name;
    for (const button of this.bar.children)
      button.setAttribute("aria-selected", String(this.tabOf(button) === name));
    this.stopAt(this.bar.querySelector('[aria-selected="true"]'));
    this.onOpen(name, Boolean(TAB_VIEWS[name]?.isWide));
    if (name !== FIRST_TAB) this.fill(name);
  }

  /** @param {string} layer */
  select(layer) {
    for (const view of this.views.values()) view.select?.(layer);
  }

  destroy() {
    for (const view of this.views.values()) view.destroy?.();
  }

  /** @param {string[]} names */
  build(names) {
    const isInside = this.bar.contains(document.activeElement);
    fresh(this.bar, ...names.map((name) => this.tab(name)));
    if (isInside) /** @type {HTMLElement | null} */ (this.bar.querySelector("button"))?.focus();
  }

  /** @param {string} name */
  tab(name) {
    const label = name === FIRST_TAB ? "Layers" : TAB_VIEWS[name].label;
    const given = {
      role: "tab",
      type: "button",
      id: `${this.id}-${name}`,
      "data-tab": name,
      "aria-controls": `${this.id}-${name}-page`,
    };
    return h(
      "button",
      { ...given, onclick: () => this.open(name), onfocus: () => this.open(name) },
      label,
    );
  }

  /** @param {Element} button */
  tabOf(button) {
    return /** @type {HTMLElement} */ (button).dataset.tab ?? "";
  }

  /** @param {string} name */
  addPage(name) {
    const given = {
      class: "pf-page",
      role: "tabpanel",
      id: `${this.id}-${name}-page`,
      "aria-labelledby": `${this.id}-${name}`,
    };
    const page = h("div", given);
    this.page.set(name, page);
    this.pages.append(page);
    return page;
  }

  /** Draw a view when it is looked at, and again only when its data changed. @param {string} name */
  fill(name) {
    let view = this.views.get(name);
    if (!view) {
      view = TAB_VIEWS[name].make(this.page.get(name) ?? this.addPage(name), this.host, this.model);
      this.views.set(name, view);
    }
    if (this.given.has(name) && isSameData(this.given.get(name), this.data[name])) return;
    this.given.set(name, this.data[name]);
    view.show(this.data[name]);
    view.select?.(this.host.selected());
  }
}
