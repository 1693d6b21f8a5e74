/** The tabs of the workbench, and the pages with their sections. */

import { fresh, h } from "../shared/dom.js";
import { rovingTabindex } from "../shared/roving_tabindex.js";
import { isSameData } from "../shared/same_data.js";
import { FIRST_TAB, sectionsWith, segmentsOf, tabsOf } from "./tab_plan.js";

/** @typedef {import("../shared/host.js").View} View */
/** @typedef {import("./tab_plan.js").Section} Section */
/** @typedef {import("./tab_plan.js").Tab} Tab */

/** What a tab without a section says. @type {Record<string, string>} */
const EMPTY = {
  options: "What could be changed is known once the model has been profiled, in a few seconds.",
  results: "What has each attempt gained? The first row comes with the first measurement.",
  machine: "How near does each layer come to what this machine can do? The profile tells.",
};

/** @typedef {{ element: HTMLElement, bar: HTMLElement, main: HTMLElement, side: HTMLElement,
 * absent: HTMLElement, empty: HTMLElement, body: HTMLElement, stopAt: (button: HTMLElement | null) => void }} Page */

export class BenchTabs {
  /**
   * @param {Section[]} sections @param {HTMLElement} table what the first tab shows @param
   * {import("../shared/host.js").Host} host @param {any} model
   * @param {(name: string, hasDetails: boolean) => void} onOpen
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
    /** @type {Map<string, HTMLElement>} */
    this.boxes = new Map();
    /** The chosen segment of each tab. @type {Map<string, string>} */
    this.segment = new Map();
    this.current = FIRST_TAB;
    /** @type {Tab[]} */
    this.tabs = [];
    this.drawn = "";
    this.bar = h("div", { class: "pf-tabs", role: "tablist", "aria-label": "views" });
    this.stopAt = rovingTabindex(this.bar, "button");
    this.pages = h("div", { class: "pf-pages" });
    /** @type {Map<string, Page>} */
    this.page = new Map();
    this.pageOf(FIRST_TAB).element.prepend(table);
    this.show({}, {});
  }

  /**
   * @param {Record<string, any> | null | undefined} data of the views by name
   * @param {Record<string, string>} absent why a section does not apply to the model
   */
  show(data, absent) {
    this.data = data ?? {};
    this.tabs = tabsOf(this.sections, this.data, absent);
    const names = this.tabs.map((tab) => tab.name).join();
    if (names !== this.drawn) this.build();
    this.drawn = names;
    this.open(this.tabs.some((tab) => tab.name === this.current) ? this.current : FIRST_TAB);
  }

  /** @param {string} name */
  open(name) {
    this.current = name;
    const tab = /** @type {Tab} */ (this.tabs.find((tab) => tab.name === name));
    const opened = this.pageOf(name);
    for (const page of this.page.values()) page.element.hidden = page !== opened;
    for (const button of this.bar.children)
      button.setAttribute("aria-selected", String(this.tabOf(button) === name));
    this.stopAt(this.bar.querySelector('[aria-selected="true"]'));
    this.onOpen(name, tab.hasDetails);
    this.drawPage(tab, opened);
  }

  /** Open the tab of a number, from 1 on; whether there is one. @param {number} number */
  openNth(number) {
    const tab = this.tabs[number - 1];
    if (tab) this.open(tab.name);
    // what had the focus is on a page that is hidden now
    const chosen = this.bar.querySelector('[aria-selected="true"]');
    if (tab) /** @type {HTMLElement | null} */ (chosen)?.focus();
    return Boolean(tab);
  }

  /** @param {string} layer */
  select(layer) {
    for (const view of this.views.values()) view.select?.(layer);
  }

  destroy() {
    for (const view of this.views.values()) view.destroy?.();
  }

  /** Where a tab shows what stands on its right. @param {string} name */
  sideOf(name) {
    return this.pageOf(name).side;
  }

  // Private to the tabs.

  build() {
    const isInside = this.bar.contains(document.activeElement);
    fresh(this.bar, ...this.tabs.map((tab) => this.tab(tab)));
    if (isInside) /** @type {HTMLElement | null} */ (this.bar.querySelector("button"))?.focus();
  }

  /** @param {Tab} tab @param {Page} page */
  drawPage(tab, page) {
    const segments = segmentsOf(tab);
    const chosen = this.chosenSegment(tab);
    this.drawSegments(tab, page, chosen);
    fresh(page.absent, tab.absent.join(" · "));
    const shown = sectionsWith(tab, chosen);
    fresh(page.empty, shown.length ? "" : (EMPTY[tab.name] ?? ""));
    for (const [name, box] of this.boxes)
      if (box.closest(".pf-page") === page.element)
        box.hidden = !shown.some((section) => section.name === name);
    for (const section of shown) this.fill(section, page);
    const hasHead = segments.length > 1 || tab.absent.length > 0;
    page.element.classList.toggle("pf-has-segments", hasHead);
    page.side.hidden = !page.side.childElementCount;
    page.body.hidden = tab.name === FIRST_TAB && !shown.length;
  }

  /** @param {Tab} tab */
  chosenSegment(tab) {
    const names = segmentsOf(tab).map((section) => section.name);
    const wanted = this.segment.get(tab.name) ?? "";
    return names.includes(wanted) ? wanted : (names[0] ?? "");
  }

  /** @param {Tab} tab @param {Page} page @param {string} chosen */
  drawSegments(tab, page, chosen) {
    const segments = segmentsOf(tab);
    const names = segments.map((section) => section.name).join();
    if (page.bar.dataset.names !== names) {
      page.bar.dataset.names = names;
      fresh(page.bar, ...segments.map((section) => this.segmentButton(tab, section)));
    }
    page.bar.hidden = segments.length < 2;
    for (const button of page.bar.children)
      button.setAttribute("aria-checked", String(this.tabOf(button) === chosen));
    page.stopAt(page.bar.querySelector('[aria-checked="true"]'));
  }

  /** @param {Tab} tab @param {Section} section */
  segmentButton(tab, section) {
    const choose = () => {
      if (this.chosenSegment(tab) === section.name) return;
      this.segment.set(tab.name, section.name);
      this.open(tab.name);
    };
    const title = section.hint || null;
    const attributes = { role: "radio", type: "button", "data-tab": section.name, title };
    return h("button", { ...attributes, onclick: choose, onfocus: choose }, section.title);
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
    const open = () => this.current === name || this.open(name);
    return h("button", { ...attributes, onclick: open, onfocus: open }, label);
  }

  /** @param {Element} button */
  tabOf(button) {
    return /** @type {HTMLElement} */ (button).dataset.tab ?? "";
  }

  /** The page of a tab, made when it is first asked for. @param {string} name @returns {Page} */
  pageOf(name) {
    const known = this.page.get(name);
    if (known) return known;
    const bar = h("div", { class: "pf-segments", role: "radiogroup", "aria-label": "options" });
    const absent = h("p", { class: "pf-absent" });
    const empty = h("p", { class: "pf-question" });
    const main = h("div", { class: "pf-page-main" }, empty);
    const side = h("aside", { class: "pf-page-side", hidden: true });
    const attributes = {
      class: "pf-page",
      role: "tabpanel",
      id: `${this.id}-${name}-page`,
      "aria-labelledby": `${this.id}-${name}`,
    };
    const head = h("div", { class: "pf-page-head" }, bar, absent);
    const body = h("div", { class: "pf-page-body" }, main, side);
    const element = h("div", attributes, head, body);
    const stopAt = rovingTabindex(bar, "button");
    const page = { element, bar, main, side, absent, empty, body, stopAt };
    this.page.set(name, page);
    this.pages.append(element);
    return page;
  }

  /**
   * Draw a section when it can be seen, and again only when its data changed.
   * @param {Section} section @param {Page} page
   */
  fill({ name, place, make }, page) {
    let view = this.views.get(name);
    if (!view) {
      const box = h("div", { class: "pf-section" });
      (place === "beside" ? page.side : page.main).append(box);
      this.boxes.set(name, box);
      view = make(box, this.host, this.model);
      this.views.set(name, view);
    }
    if (this.shownData.has(name) && isSameData(this.shownData.get(name), this.data[name])) return;
    this.shownData.set(name, this.data[name]);
    view.show(this.data[name]);
    view.select?.(this.host.selected());
  }
}
