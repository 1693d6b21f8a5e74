/** The workbench: see the layers' costs, choose steps, see their measured effect, undo. */

import { withBarredChoices } from "./barred_choices.js";
import { channelsColumn } from "./channels_column.js";
import { DetailChannels } from "./detail_channels.js";
import { DetailPanel } from "./detail.js";
import { h } from "../shared/dom.js";
import { expected } from "./expected.js";
import { benchFooter } from "./footer.js";
import { isField, isPlainKey } from "../shared/grid_keys.js";
import { benchHeader } from "./header.js";
import { heatColumn } from "./sensitivity_column.js";
import { unserved } from "../shared/host.js";
import { layers } from "../layers/index.js";
import { benchColumns } from "./precision_column.js";
import { unpackedSensitivity } from "../sensitivity/table.js";
import { watchUnanswered } from "./unanswered.js";
import { BenchTabs, FIRST_TAB } from "./tabs.js";

/** @type {Record<string, string>} */
const BENCH_KEYS = { u: "undo", r: "redo", m: "measure" };

const NOT_YET_FOUND = {};

/**
 * @param {import("./tabs.js").Section[]} sections what the tabs hold, as Python declares it
 * @returns {import("../shared/host.js").MakeView}
 */
export function workbench(sections) {
  return (root, host, model) => new Bench(sections, root, host, model);
}

class Bench {
  /**
   * @param {import("./tabs.js").Section[]} sections @param {HTMLElement} root
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
    this.channels = new DetailChannels(host, model, () => this.table.refresh());
    this.table.extras(this.columns());
    this.header = benchHeader();
    this.main = h("div", { class: "pf-bench-main" });
    this.tabs = new BenchTabs(sections, box, host, model, (name, isWide) =>
      this.setLayout(name, isWide),
    );
    this.detail = new DetailPanel(host, (step) => host.ask({ do: "choose", step }));
    this.footer = benchFooter((request) => host.ask(request));
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
    );
    this.detail.slot.before(this.channels.element);
    this.main.append(this.tabs.pages, this.detail.element);
    this.element = h(
      "section",
      { class: "pf-workbench", tabindex: "-1", "aria-label": "workbench" },
      this.header.element,
      bar,
      this.main,
      this.footer.element,
    );
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    root.append(this.element);
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
  }

  destroy() {
    for (const [name, listener] of this.listeners ?? []) this.model.off(name, listener);
    this.silence.destroy();
    this.table.destroy?.();
    this.tabs.destroy();
    this.detail.destroy();
    this.channels.destroy();
  }

  drawState() {
    this.silence.look();
    this.state = expected(this.model.get("state"), unserved(this.model));
    this.header.show(this.state);
    this.footer.show(this.state, this.isUnanswered);
    this.channels.follow();
    this.addColumns();
    this.table.refresh();
    this.drawDetail();
  }

  drawDetail() {
    const asked = /** @type {any[]} */ (unserved(this.model)).filter(
      (request) => request.do === "choose",
    );
    this.detail.show(
      this.table.table(),
      this.host.selected() ?? "",
      this.model.get("detail"),
      asked,
    );
  }

  drawViews() {
    const views = this.model.get("views");
    const always = this.sections.filter((section) => section.isAlwaysShown);
    this.tabs.show({
      ...Object.fromEntries(always.map(({ name }) => [name, NOT_YET_FOUND])),
      ...views,
    });
    this.channels.show(views?.importance);
    this.addColumns();
  }

  /** Add the columns whose data are known. */
  addColumns() {
    const heat = this.model.get("views")?.sensitivity ?? null;
    const hasChannels = this.channels.isKnown || Object.keys(this.state.pruned).length > 0;
    if (this.heat === heat && this.hasChannels === hasChannels) return;
    this.heat = heat;
    this.hasChannels = hasChannels;
    this.table.extras(this.columns());
  }

  /** The columns beside the profile's own. */
  columns() {
    const chosen = (/** @type {string} */ layer) =>
      this.state.askedPrecisions[layer] ?? this.state.precisions[layer] ?? "";
    const [precision, ...rest] = benchColumns(
      () => this.state,
      (layer, name) => this.host.ask({ do: "precision", layer, name }),
    );
    const heat = this.heat ? [heatColumn(unpackedSensitivity(this.heat), chosen)] : [];
    const channels = this.hasChannels
      ? [channelsColumn(() => ({ channels: this.state.channels, chosen: this.channels.chosen }))]
      : [];
    return [...heat, ...channels, withBarredChoices(precision, () => this.state), ...rest];
  }

  /** @param {string} name @param {boolean} isWide */
  setLayout(name, isWide) {
    this.main.classList.toggle("pf-wide", isWide);
    this.table.tools.classList.toggle("pf-still", name !== FIRST_TAB);
  }

  /** @param {boolean} isUnanswered */
  hear(isUnanswered) {
    this.isUnanswered = isUnanswered;
    this.footer.show(this.state, isUnanswered);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (event.defaultPrevented || !isPlainKey(event) || isField(event.target)) return;
    const action = BENCH_KEYS[event.key];
    if (!action && event.key !== "/") return;
    event.preventDefault();
    event.stopPropagation();
    if (action) this.footer.press(action);
    else this.filter();
  }

  filter() {
    this.tabs.open(FIRST_TAB);
    this.table.filter();
  }
}
