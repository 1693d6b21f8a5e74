/** The workbench: see the layers' costs, choose steps, see their measured effect, undo. */

import { withBarredChoices } from "./barred_choices.js";
import { channelsColumn } from "./channels_column.js";
import { offerButtons } from "./chips.js";
import { DetailChannels } from "./detail_channels.js";
import { DetailFormat } from "./detail_format.js";
import { DetailPanel } from "./detail.js";
import { h } from "../shared/dom.js";
import { expected } from "./expected.js";
import { keepFocus } from "./focus.js";
import { isField, isPlainKey } from "../shared/grid_keys.js";
import { headline } from "./headline.js";
import { keyHelp } from "./key_help.js";
import { heatColumn } from "./sensitivity_column.js";
import { unserved } from "../shared/host.js";
import { insertBelow } from "./notebook_cell.js";
import { layers } from "../layers/index.js";
import { benchColumns } from "./precision_column.js";
import { unpackedSensitivity } from "../sensitivity/table.js";
import { qualityPanel } from "./quality_panel.js";
import { recipeBar } from "./recipe_bar.js";
import { Sheet, sheetButton } from "./sheet.js";
import { FIRST_TAB } from "./tab_plan.js";
import { BenchTabs } from "./tabs.js";
import { trustOf, trustStrip } from "./trust_strip.js";
import { watchUnanswered } from "./unanswered.js";

/** @type {Record<string, string>} */
const BENCH_KEYS = { u: "undo", r: "redo", m: "measure" };

const NOT_YET_FOUND = {};

/**
 * @param {import("./tab_plan.js").Section[]} sections what the tabs hold, as Python declares it
 * @returns {import("../shared/host.js").MakeView}
 */
export function workbench(sections) {
  return (root, host, model) => new Bench(sections, root, host, model);
}

class Bench {
  /**
   * @param {import("./tab_plan.js").Section[]} sections @param {HTMLElement} root
   * @param {import("../shared/host.js").Host} host @param {any} model
   */
  constructor(sections, root, host, model) {
    this.sections = sections;
    this.host = host;
    this.model = model;
    this.isUnanswered = false;
    this.state = expected(model.get("state"), unserved(model));
    const box = h("div", { class: "pf-bench-table" });
    this.table = layers(box, host);
    this.heat = /** @type {any} */ (null);
    this.hasChannels = false;
    this.hasChanges = false;
    this.absent = "{}";
    this.channels = new DetailChannels(host, model);
    const [formats, change] = benchColumns(
      () => this.state,
      (layer, name) => host.ask({ do: "precision", layer, name }),
    );
    this.formats = withBarredChoices(formats, () => this.state);
    this.change = change;
    this.format = new DetailFormat(this.formats, () => this.state);
    this.table.extras(this.columns());
    this.main = h("div", { class: "pf-bench-main" });
    this.tabs = new BenchTabs(sections, box, host, model, (name, hasDetails) =>
      this.setLayout(name, hasDetails),
    );
    const choose = (/** @type {any} */ step) => host.ask({ do: "choose", step });
    this.offers = offerButtons(choose);
    this.quality = qualityPanel();
    this.machineQuality = qualityPanel();
    this.detail = new DetailPanel(host, choose, [this.offers.element, this.quality.element]);
    const sheet = sections.find((section) => section.place === "sheet");
    this.sheet = sheet ? new Sheet(sheet, host, model, (isOpen) => this.cover(isOpen)) : null;
    this.primary = sheetButton(sheet);
    this.header = headline(this.primary);
    this.strip = trustStrip((request) => host.ask(request));
    this.footer = recipeBar(
      (request) => host.ask(request),
      (code) => insertBelow(root, model, code),
    );
    this.help = keyHelp();
    this.silence = watchUnanswered(model, (isUnanswered) => this.hear(isUnanswered));
    this.listen();
    this.build(root);
  }

  /** @param {HTMLElement} root */
  build(root) {
    const bar = h(
      "nav",
      { class: "pf-bench-bar", "aria-label": "views" },
      this.tabs.bar,
      this.table.tools,
      this.help.button,
    );
    this.detail.times.after(this.format.element);
    this.detail.slot.before(this.channels.element);
    this.tabs.sideOf("machine").append(this.machineQuality.element);
    this.main.append(this.tabs.pages, this.detail.element);
    const over = [this.sheet?.element, this.help.element, this.footer.notices];
    const body = h("div", { class: "pf-bench-body" }, this.main);
    body.append(.../** @type {HTMLElement[]} */ (over.filter(Boolean)));
    this.element = h(
      "section",
      { class: "pf-workbench", tabindex: "-1", "aria-label": "workbench" },
      this.header.element,
      this.strip.element,
      bar,
      body,
      this.footer.element,
    );
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    for (const part of [this.tabs.bar, this.table.tools])
      part.addEventListener("click", () => this.sheet?.close(), true);
    this.tabs.pages.addEventListener("keydown", (event) => this.onEnter(event), true);
    this.primary.addEventListener("click", () => this.sheet?.toggle());
    this.detail.close.addEventListener("click", () => this.closeDrawer());
    this.table.enter(() => this.detail.enter());
    this.detail.element.addEventListener("keydown", (event) => this.leaveDetail(event));
    this.setDrawer("auto");
    root.append(this.element);
    this.focus = keepFocus(this.element, this.model);
    this.drawState();
    this.drawViews();
  }

  listen() {
    /** @type {[string, () => void][]} */
    this.listeners = [
      ["change:state", () => this.drawState()],
      ["change:requests", () => this.drawState()],
      ["change:served", () => this.drawState()],
      ["change:live", () => this.table.refresh()],
      ["change:cut", () => this.drawCut()],
      ["change:detail", () => this.drawDetail()],
      ["change:views", () => this.drawViews()],
    ];
    for (const [name, listener] of this.listeners) this.model.on(name, listener);
  }

  /** @param {any} data a packed profile */
  show(data) {
    this.table.show(data);
    this.drawDetail();
  }

  /** @param {string} layer */
  select(layer) {
    this.table.select?.(layer);
    this.tabs.select(layer);
    this.drawDetail();
    this.detail.select(layer);
    this.channels.select(layer);
    this.sheet?.select(layer);
    if (layer) this.setDrawer("open");
  }

  destroy() {
    for (const [name, listener] of this.listeners ?? []) this.model.off(name, listener);
    this.silence.destroy();
    this.focus?.destroy();
    this.table.destroy?.();
    this.tabs.destroy();
    this.detail.destroy();
    this.channels.destroy();
    this.sheet?.destroy();
    this.footer.destroy();
  }

  drawState() {
    this.silence.look();
    this.state = expected(this.model.get("state"), unserved(this.model));
    this.header.show(this.state);
    this.strip.show(this.state);
    this.offers.show(this.state.offers);
    this.quality.show(this.state);
    this.machineQuality.show(this.state);
    this.footer.show(this.state, this.isUnanswered);
    this.element?.classList.toggle("pf-untold", !["", "quiet"].includes(trustOf(this.state)));
    this.showPrimary();
    this.drawAbsent();
    this.channels.follow();
    this.addColumns();
    this.table.refresh();
    this.drawDetail();
  }

  drawCut() {
    this.channels.follow();
    this.table.refresh();
  }

  drawDetail() {
    const asked = /** @type {any[]} */ (unserved(this.model)).filter(
      (request) => request.do === "choose",
    );
    const [table, layer] = [this.table.table(), this.host.selected() ?? ""];
    this.detail.show(table, layer, this.model.get("detail"), asked);
    this.format.show(table, layer);
  }

  drawViews() {
    const views = this.model.get("views");
    const always = this.sections.filter((section) => section.isAlwaysShown);
    this.tabs.show(
      { ...Object.fromEntries(always.map(({ name }) => [name, NOT_YET_FOUND])), ...views },
      this.state.absent,
    );
    if (this.sheet) this.sheet.show(views?.[this.sheet.section.name]);
    this.channels.show(views?.importance);
    this.addColumns();
  }

  /** Draw the tabs again when another section turns out not to apply. */
  drawAbsent() {
    const absent = JSON.stringify(this.state.absent);
    if (absent === this.absent) return;
    this.absent = absent;
    this.drawViews();
  }

  /** One primary action: the sheet's, or to wait while the machine is busy. */
  showPrimary() {
    const isTroubled = ["busy", "unusable"].includes(trustOf(this.state));
    this.primary.classList.toggle("pf-primary", !isTroubled && !this.sheet?.isOpen);
    this.primary.setAttribute("aria-expanded", String(Boolean(this.sheet?.isOpen)));
  }

  /** Add the columns whose data are known. */
  addColumns() {
    const heat = this.model.get("views")?.sensitivity ?? null;
    const hasChannels = this.channels.isKnown || Object.keys(this.state.pruned).length > 0;
    const hasChanges = Object.keys(this.state.changes).length > 0;
    const isSame = this.hasChannels === hasChannels && this.hasChanges === hasChanges;
    if (this.heat === heat && isSame) return;
    this.heat = heat;
    this.hasChanges = hasChanges;
    this.hasChannels = hasChannels;
    this.table.extras(this.columns());
  }

  /** The columns beside the profile's own. */
  columns() {
    const chosen = (/** @type {string} */ layer) =>
      this.state.askedPrecisions[layer] ?? this.state.precisions[layer] ?? "";
    const heat = this.heat ? [heatColumn(unpackedSensitivity(this.heat), chosen)] : [];
    const channels = this.hasChannels
      ? [channelsColumn(() => ({ channels: this.state.channels, chosen: this.channels.chosen }))]
      : [];
    return [...heat, ...channels, this.formats, ...(this.hasChanges ? [this.change] : [])];
  }

  /** @param {string} name @param {boolean} hasDetails */
  setLayout(name, hasDetails) {
    this.main.classList.toggle("pf-wide", !hasDetails);
    this.table.tools.classList.toggle("pf-still", name !== FIRST_TAB);
  }

  /**
   * Where there is no room beside the table, the details are a drawer.
   * @param {"auto" | "open" | "closed"} how
   */
  setDrawer(how) {
    this.main.dataset.drawer = how;
  }

  /** While the sheet is open, what it covers takes neither focus nor clicks. @param {boolean} is */
  cover(is) {
    this.main.inert = is;
    this.showPrimary();
  }

  /** @param {boolean} isUnanswered */
  hear(isUnanswered) {
    this.isUnanswered = isUnanswered;
    this.footer.show(this.state, isUnanswered);
  }

  /** Enter on a row shows its details. @param {KeyboardEvent} event */
  onEnter(event) {
    if (event.key === "Enter" && this.host.selected()) this.setDrawer("open");
  }

  /** Escape in the details goes back to the layer's row. @param {KeyboardEvent} event */
  leaveDetail(event) {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    this.closeDrawer();
    this.table.focus();
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (event.defaultPrevented || !isPlainKey(event) || isField(event.target)) return;
    if (!this.obey(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Whether a key meant something. @param {string} key */
  obey(key) {
    if (key in BENCH_KEYS) this.footer.press(BENCH_KEYS[key]);
    else if (key === "/") this.filter();
    else if (key === "?") this.help.toggle();
    else if (key === "f" && this.sheet) this.sheet.toggle();
    else if (key === "w") this.strip.wait();
    else if (key === "Escape") return this.help.close() || this.closeSheet() || this.closeDrawer();
    else if (/^[1-9]$/.test(key)) return this.openTab(Number(key));
    else return false;
    return true;
  }

  closeSheet() {
    const isOpen = Boolean(this.sheet?.isOpen);
    this.sheet?.close();
    return isOpen;
  }

  closeDrawer() {
    const isOpen = this.main.dataset.drawer !== "closed";
    const hadFocus = this.detail.element.contains(document.activeElement);
    this.setDrawer("closed");
    if (hadFocus && !this.detail.element.getClientRects().length) this.element?.focus();
    return isOpen;
  }

  /** @param {number} number */
  openTab(number) {
    this.sheet?.close();
    return this.tabs.openNth(number);
  }

  filter() {
    this.sheet?.close();
    this.tabs.open(FIRST_TAB);
    this.table.filter();
  }
}
