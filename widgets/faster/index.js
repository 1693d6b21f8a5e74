/** Make it faster: choose a goal and limits, see the candidates as they are measured, apply one. */

import { SearchForm } from "./form.js";
import { fresh, h, set } from "../shared/dom.js";
import { plainTable } from "../shared/plain_table.js";
import { askingOf } from "../shared/question.js";
import { rovingTabindex } from "../shared/roving_tabindex.js";

/**
 * `so_far` and `over` say how far the search is while it runs, and once it is done.
 * @typedef {{ options: import("./form.js").Choice, so_far: string, over: string, note: string,
 *   stamp?: number, tables: import("../shared/plain_table.js").Table[] }} CandidatesData
 */

const SEARCH = { query: "faster", request: "faster" };
const FOLLOWS = ["state", "requests", "served"];

/** @type {import("../shared/host.js").MakeView} */
export function faster(root, host, model) {
  return new FasterView(root, host, model);
}

class FasterView {
  /** @param {HTMLElement} root @param {any} host @param {any} model */
  constructor(root, host, model) {
    this.host = host;
    this.model = model;
    this.data = /** @type {CandidatesData | null} */ (null);
    this.wasAsked = false;
    this.phase = "";
    /** The stamp of what an earlier search found. @type {number | undefined} */
    this.old = undefined;
    this.told = "";
    this.canAct = Boolean(host.close);
    this.form = new SearchForm(
      (choice) => this.search(choice),
      () => host.ask({ do: "stop", query: SEARCH.query }),
    );
    this.form.element.hidden = !this.canAct;
    this.status = h("p", { class: "pf-faster-status", "aria-live": "polite" });
    this.note = h("p", { class: "pf-faster-note" });
    this.list = h("div", { class: "pf-faster-rows" });
    this.stopAt = rovingTabindex(this.list, "button", true);
    root.append(
      h("div", { class: "pf-faster" }, this.form.element, this.status, this.note, this.list),
    );
    this.onState = () => this.drawState();
    for (const name of FOLLOWS) model?.on(`change:${name}`, this.onState);
  }

  /** @param {any} data packed candidates; {} before there are any */
  show(data) {
    const before = this.data;
    this.data = data?.tables ? data : null;
    // another search; a new baseline restates the same one, and leaves what is chosen meanwhile
    const isOther = JSON.stringify(before?.options) !== JSON.stringify(this.data?.options);
    if (this.data && this.asking === "idle" && isOther) this.form.set(this.data.options);
    this.drawState();
    this.drawRows();
    const isNew = !this.data && !this.wasAsked && this.asking === "idle";
    if (isNew && this.canAct) this.search(this.form.choice);
  }

  destroy() {
    for (const name of FOLLOWS) this.model?.off(`change:${name}`, this.onState);
  }

  /** Whether the search waits for its turn, runs, or neither. */
  get asking() {
    return (this.model && askingOf(this.model, SEARCH)?.phase) || "idle";
  }

  /** @param {import("./form.js").Choice} choice */
  search(choice) {
    this.wasAsked = true;
    this.host.ask({ do: SEARCH.request, ...choice });
    this.drawState();
  }

  drawState() {
    const phase = this.asking;
    if (this.phase === "idle" && phase !== "idle") this.old = this.data?.stamp;
    this.phase = phase;
    const status = this.statusOf(phase);
    const { can_train, in_points, is_bounded, loss_label } = this.model?.get("state") ?? {};
    const facts = { can_train, in_points, is_bounded, loss_label };
    const key = JSON.stringify([facts, phase, status, Boolean(this.data), this.data?.note]);
    if (key === this.told) return;
    this.told = key;
    this.form.follow(facts, phase !== "idle", Boolean(this.data));
    set(this.status, { "aria-busy": String(phase === "running") }); // its end is announced
    fresh(this.status, status);
    fresh(this.note, this.data?.note ?? "");
  }

  /** @param {string} phase */
  statusOf(phase) {
    const { data } = this;
    const isOld = this.old !== undefined && data?.stamp === this.old;
    if (phase === "waiting") return "The search begins when the current measurement is done.";
    if (phase === "running")
      return data && !isOld ? data.so_far : "The first candidates are being measured …";
    return data?.over ?? "Nothing is measured yet: press Search.";
  }

  /** Draw the rows anew; the button that has the focus keeps it, wherever its row has moved. */
  drawRows() {
    const rowOf = (/** @type {Element | null} */ button) =>
      button?.closest("tr")?.querySelector("th")?.title;
    const focused = this.list.contains(document.activeElement) && document.activeElement;
    const held = focused ? rowOf(focused) : undefined;
    const press = this.canAct ? (/** @type {any} */ request) => this.press(request) : null;
    fresh(this.list, ...(this.data?.tables ?? []).map((table) => plainTable(table, press)));
    const buttons = [...this.list.querySelectorAll("button")];
    const again = held && buttons.find((button) => rowOf(button) === held);
    this.stopAt(again || buttons[0] || null);
    if (again) again.focus();
  }

  /** Apply a candidate, or search again with what lets one in. @param {any} request */
  press({ do: name, ...options }) {
    if (name === SEARCH.request) {
      this.form.set(options);
      this.search(this.form.choice);
    } else {
      this.host.ask({ do: name, ...options });
      this.host.close();
    }
  }
}
