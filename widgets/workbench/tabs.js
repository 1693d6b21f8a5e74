/** The tabs of the workbench: the layer table first, then whatever sections there is data for. */

import { fresh, h } from "../shared/dom.js";
import { rovingTabindex } from "../shared/roving_tabindex.js";
import { isSameData } from "../shared/same_data.js";

/** @typedef {import("../shared/host.js").View} View */

/**
 * A section as Python declares it; a wide one is about the whole model and replaces the details.
 * @typedef {{
 *   name: string, title: string, tab: string, isWide: boolean, isAlwaysShown: boolean,
 *   make: import("../shared/host.js").MakeView,
 * }} Section
 * @typedef {{ name: string, label: string, isWide: boolean, sections: Section[] }} Tab
 */

export const FIRST_TAB = "layers";

/**
 * The tabs that there are, the layers first: each section is in the tab that it names.
 * @param {Section[]} sections @param {Record<string, any> | null | undefined} views @returns
 * {Tab[]}
 */
export function tabsOf(sections, views) {
  const tabs = new Map([[FIRST_TAB, tabNamed(FIRST_TAB, "Layers", false)]]);
  for (const section of sections) {
    if (!views?.[section.name]) continue;
    const label = sections.find((other) => other.name === section.tab)?.title ?? section.tab;
    const tab = tabs.get(section.tab) ?? tabNamed(section.tab, label, section.isWide);
    tab.sections.push(section);
    tabs.set(section.tab, tab);
  }
  return [...tabs.values()];
}

/** @param {string} name @param {string} label @param {boolean} isWide @returns {Tab} */
function tabNamed(name, label, isWide) {
  return { name, label, isWide, sections: [] };
}

export class BenchTabs {
  /**
   * @param {Section[]} sections @param {HTMLElement} table what the first tab shows @param
   * {import("../shared/host.js").Host} host @param {any} model
   * @param {(name: string, isWide: boolean) => void} onOpen
   */
  constructor(sections, table, host, model, onOpen) {
    this.sections = sections;
    this.onOpen = onOpen;
    this.host = host;
    this.model = model;
    this.id = `pf-tab-${Math.random().toString(36).slice(2)}`;
    /** @type {Record<string, any>} */
    this.data = {};
    /** @type {Map<string, View>} */
    this.views = new Map();
    /** The data last shown by each view. @type {Map<string, any>} */
    this.shownData = new Map();
    this.current = FIRST_TAB;
    /** @type {Tab[]} */
    this.tabs = [];
    this.bar = h("div", { class: "pf-tabs", role: "tablist", "aria-label": "views" });
    this.stopAt = rovingTabindex(this.bar, "button");
    this.pages = h("div", { class: "pf-pages" });
    /** @type {Map<string, HTMLElement>} */
    this.page = new Map();
    this.addPage(FIRST_TAB).append(table);
    this.show({});
  }

  /** @param {Record<string, any> | null | undefined} data of the views by name */
  show(data) {
    this.data = data ?? {};
    const before = this.tabs.map((tab) => tab.name).join();
    this.tabs = tabsOf(this.sections, this.data);
    if (this.tabs.map((tab) => tab.name).join() !== before) this.build();
    this.open(this.tabs.some((tab) => tab.name === this.current) ? this.current : FIRST_TAB);
  }

  /** @param {string} name */
  open(name) {
    this.current = name;
    for (const [other, page] of this.page) page.hidden = other !== name;
    for (const button of this.bar.children)
      button.setAttribute("aria-selected", String(this.tabOf(button) === name));
    this.stopAt(this.bar.querySelector('[aria-selected="true"]'));
    const tab = /** @type {Tab} */ (this.tabs.find((tab) => tab.name === name));
    this.onOpen(name, tab.isWide);
    for (const section of tab.sections) this.fill(section);
  }

  /** @param {string} layer */
  select(layer) {
    for (const view of this.views.values()) view.select?.(layer);
  }

  destroy() {
    for (const view of this.views.values()) view.destroy?.();
  }

  build() {
    const isInside = this.bar.contains(document.activeElement);
    fresh(this.bar, ...this.tabs.map((tab) => this.tab(tab)));
    if (isInside) /** @type {HTMLElement | null} */ (this.bar.querySelector("button"))?.focus();
  }

  /** @param {Tab} tab */
  tab({ name, label }) {
    const attributes = {
      role: "tab",
      type: "button",
      id: `${this.id}-${name}`,
      "data-tab": name,
      "aria-controls": `${this.id}-${name}-page`,
    };
    return h(
      "button",
      { ...attributes, onclick: () => this.open(name), onfocus: () => this.open(name) },
      label,
    );
  }

  /** @param {Element} button */
  tabOf(button) {
    return /** @type {HTMLElement} */ (button).dataset.tab ?? "";
  }

  /** @param {string} name */
  addPage(name) {
    const attributes = {
      class: "pf-page",
      role: "tabpanel",
      id: `${this.id}-${name}-page`,
      "aria-labelledby": `${this.id}-${name}`,
    };
    const page = h("div", attributes);
    this.page.set(name, page);
    this.pages.append(page);
    return page;
  }

  /**
   * Draw a section when its tab is open, and again only when its data changed.
   * @param {Section} section
   */
  fill({ name, tab, make }) {
    let view = this.views.get(name);
    if (!view) {
      const page = this.page.get(tab) ?? this.addPage(tab);
      const box = h("div", { class: "pf-section" });
      page.append(box);
      view = make(box, this.host, this.model);
      this.views.set(name, view);
    }
    if (this.shownData.has(name) && isSameData(this.shownData.get(name), this.data[name])) return;
    this.shownData.set(name, this.data[name]);
    view.show(this.data[name]);
    view.select?.(this.host.selected());
  }
}
