/** Make it faster: choose a goal and limits, see the candidates as they are measured, apply one. */

import { SearchForm } from "./form.js";
import { candidateTable } from "./list.js";
import { isOtherSearch, optionsOf, rowAfter, sheetStatus } from "./layout.js";
import { fresh, h, set } from "../shared/dom.js";
import { askingOf } from "../shared/question.js";

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
    this.data = /** @type {import("./layout.js").CandidatesData | null} */ (null);
    this.wasAsked = false;
    this.phase = /** @type {"idle" | "waiting" | "running" | ""} */ ("");
    /** The stamp of what an earlier search found. @type {number | undefined} */
    this.old = undefined;
    this.hasRecipe = false;
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
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    this.list.addEventListener("focusin", (event) => this.stopAt(rowOf(event.target)));
    root.append(
      h("div", { class: "pf-faster" }, this.form.element, this.status, this.note, this.list),
    );
    this.onState = () => this.drawState();
    for (const name of FOLLOWS) model?.on(`change:${name}`, this.onState);
  }

  /** @param {any} data packed candidates; {} before there are any */
  show(data) {
    const before = this.data;
    this.data = data?.rows ? data : null;
    if (this.data && this.asking === "idle" && isOtherSearch(before, this.data))
      this.form.set(optionsOf(this.data));
    this.drawState();
    this.drawRows();
    const isNew = !this.data && !this.wasAsked && this.asking === "idle";
    if (isNew && this.canAct) this.search(this.form.choice);
  }

  destroy() {
    for (const name of FOLLOWS) this.model?.off(`change:${name}`, this.onState);
  }

  get state() {
    return this.model?.get("state") ?? {};
  }

  /** Whether the search waits for its turn, runs, or neither. */
  get asking() {
    return (this.model && askingOf(this.model, SEARCH)?.phase) || "idle";
  }

  /** @param {import("./form.js").Choice} choice */
  search(choice) {
    this.wasAsked = true;
    this.host.ask({ do: "faster", ...choice });
    this.drawState();
  }

  drawState() {
    const state = this.state;
    const phase = this.asking;
    if (this.phase === "idle" && phase !== "idle") this.old = this.data?.stamp;
    this.phase = phase;
    const isOld = this.old !== undefined && this.data?.stamp === this.old;
    const status = sheetStatus(phase, this.data, isOld);
    const hasRecipe = Boolean(state.recipe?.length);
    if (hasRecipe !== this.hasRecipe) {
      this.hasRecipe = hasRecipe;
      this.drawRows();
    }
    const facts = [Boolean(state.can_train), Boolean(state.has_metric), state.metric_name];
    const key = JSON.stringify([facts, phase, status, Boolean(this.data), this.data?.note]);
    if (key === this.told) return;
    this.told = key;
    const [can_train, has_metric, metric_name] = facts;
    this.form.follow({ can_train, has_metric, metric_name }, phase !== "idle");
    this.form.name(Boolean(this.data));
    set(this.status, { "aria-busy": String(phase === "running") }); // its end is announced
    fresh(this.status, status);
    fresh(this.note, this.data?.note ?? "");
  }

  /** Draw the rows anew; the row or button that has the focus keeps it, wherever it has moved. */
  drawRows() {
    const focused = document.activeElement;
    const held = this.list.contains(focused) ? rowOf(focused)?.dataset.label : undefined;
    const isButton = focused?.tagName === "BUTTON";
    if (!this.data) return void fresh(this.list);
    const act = this.canAct ? this.actions() : null;
    fresh(this.list, candidateTable(this.data, act, this.hasRecipe));
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

/** @param {EventTarget | null} target @returns {HTMLElement | null} */
function rowOf(target) {
  return target instanceof HTMLElement ? target.closest("[data-label]") : null;
}
