/** Make it faster: choose a goal and limits, see the candidates as they are measured, apply one. */

import { SearchForm } from "./form.js";
import { candidateTable } from "./list.js";
import { rowAfter, searchStatus } from "./layout.js";
import { fresh, h } from "../shared/dom.js";

const SEARCHING = "searching";

/** @type {import("../shared/host.js").MakeView} */
export function faster(root, host, model) {
  return new FasterView(root, host, model);
}

class FasterView {
  /** @param {HTMLElement} root @param {any} host @param {any} model */
  constructor(root, host, model) {
    this.host = host;
    this.model = model;
    this.data = /** @type {import("./layout.js").CandidatesData | null} */ (null);
    this.wasAsked = false;
    this.canAct = Boolean(host.close);
    this.form = new SearchForm(
      (choice) => this.search(choice),
      () => host.ask({ do: "stop" }),
    );
    this.form.element.hidden = !this.canAct;
    this.status = h("p", { class: "pf-faster-status", "aria-live": "polite" });
    this.note = h("p", { class: "pf-faster-note" });
    this.list = h("div", { class: "pf-faster-rows" });
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    this.list.addEventListener("focusin", (event) => this.stopAt(rowOf(event.target)));
    root.append(
      h("div", { class: "pf-faster" }, this.form.element, this.status, this.note, this.list),
    );
    this.onState = () => this.drawState();
    model?.on("change:state", this.onState);
  }

  /** @param {any} data packed candidates; {} before there are any */
  show(data) {
    this.data = data?.rows ? data : null;
    if (this.data && !this.isSearching) this.form.set(chosen(this.data));
    this.drawState();
    this.drawRows();
    if (!this.data && this.canAct && !this.wasAsked) this.search(this.form.choice);
  }

  destroy() {
    this.model?.off("change:state", this.onState);
  }

  get state() {
    return this.model?.get("state") ?? {};
  }

  get isSearching() {
    return this.state.status === SEARCHING;
  }

  /** @param {import("./form.js").Choice} choice */
  search(choice) {
    this.wasAsked = true;
    this.host.ask({ do: "faster", ...choice });
    fresh(this.status, "The search begins when the current measurement is done.");
  }

  drawState() {
    const state = this.state;
    const facts = { can_train: Boolean(state.can_train), has_metric: Boolean(state.has_metric) };
    this.form.follow(facts, this.isSearching);
    this.form.name(Boolean(this.data));
    if (this.data) fresh(this.status, searchStatus(this.data, this.isSearching));
    fresh(this.note, this.data?.note ?? "");
  }

  /** Draw the rows anew; the row or button that has the focus keeps it, wherever it has moved. */
  drawRows() {
    const focused = document.activeElement;
    const held = this.list.contains(focused) ? rowOf(focused)?.dataset.label : undefined;
    const isButton = focused?.tagName === "BUTTON";
    if (!this.data) return void fresh(this.list);
    fresh(this.list, candidateTable(this.data, this.canAct ? this.actions() : null));
    const row = this.rows().find((other) => other.dataset.label === held);
    this.stopAt(row ?? this.rows()[0] ?? null);
    const target = isButton ? row?.querySelector("button") : row;
    target?.focus();
  }

  actions() {
    return {
      /** @param {import("./layout.js").CandidateRow} row */
      apply: (row) => {
        this.host.ask({ do: "apply_candidate", label: row.label });
        this.host.close();
      },
      /** @param {import("./layout.js").CandidateRow} row */
      allow: (row) => {
        this.form.set(row.allow ?? {});
        this.search(this.form.choice);
      },
    };
  }

  rows() {
    return /** @type {HTMLElement[]} */ ([...this.list.querySelectorAll("[data-label]")]);
  }

  /** @param {HTMLElement | null} row */
  stopAt(row) {
    if (row) for (const other of this.rows()) other.tabIndex = other === row ? 0 : -1;
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const rows = this.rows();
    const row = rowOf(event.target);
    const next = row ? rowAfter(event.key, rows.indexOf(row), rows.length) : null;
    if (next !== null) rows[next].focus();
    else if (event.key === "Enter" && event.target === row) row?.querySelector("button")?.click();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** The options that a search had. @param {import("./layout.js").CandidatesData} data */
function chosen({ goal, metric_drop, may_train, seconds }) {
  return { goal, metric_drop, may_train, seconds };
}

/** @param {EventTarget | null} target @returns {HTMLElement | null} */
function rowOf(target) {
  return target instanceof HTMLElement ? target.closest("[data-label]") : null;
}
