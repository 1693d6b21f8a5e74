/** Everything tried in this session: a table, a scatter, two rows compared, and what to take along. */

import { fresh, h } from "../shared/dom.js";
import { unserved } from "../shared/host.js";
import { showPress } from "../shared/press.js";
import { askingOf } from "../shared/question.js";
import { plainTable } from "../shared/plain_table.js";
import { ResultsGrid } from "./grid.js";
import { unpackedPicture } from "../shared/picture.js";
import { PictureSheet } from "../shared/picture_view.js";
import { marksAfter, marksWith } from "./marks.js";

/** @typedef {import("../shared/plain_table.js").Table} Table */
/**
 * @typedef {import("./grid.js").ResultsData & { title: string, scatter: any, search?: Table | null,
 *   pair: { first: number, second: number, table: Table, difference: string, note: string } | null
 * }} ResultsData
 */

const SAVE_FOLDER = { query: "save_folder", request: "save_folder" };
const FOLLOWS = ["state", "requests", "served"];
/** What a chosen recipe can be taken along as. */
const TAKE = [
  {
    ask: "save_folder",
    label: "Save folder",
    hint: "weights and recipe; lab.load opens it",
  },
  {
    ask: "report",
    label: "Report",
    hint: "one page with everything tried",
  },
];

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function results(root, host, model) {
  return new ResultsView(root, host, model);
}

class ResultsView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    this.host = host;
    this.model = model;
    /** @type {ResultsData | null} */
    this.data = null;
    /** @type {number[]} */
    this.marks = [];
    this.drawn = "";
    this.empty = h("div", { class: "pf-empty pf-results-empty" });
    this.going = /** @type {number | null} */ (null);
    this.grid = new ResultsGrid(() => this.choices);
    this.pair = h("div", { class: "pf-results-pair", role: "status" });
    this.search = h("div", { class: "pf-results-search" });
    this.scatter = new PictureSheet(host, {
      choose: (number) => this.state && this.mark(Number(number)),
    });
    this.taking = h("p", { class: "pf-note" });
    this.taken = h("p", { class: "pf-note", role: "status" });
    this.takes = new Map(TAKE.map(({ ask, label }) => [ask, this.takeButton(ask, label)]));
    this.take = h(
      "div",
      { class: "pf-results-take" },
      this.taking,
      h("div", { class: "pf-results-buttons" }, ...this.takes.values()),
      this.taken,
    );
    this.whole = h(
      "div",
      { class: "pf-results-both" },
      h("div", { class: "pf-results-left" }, this.grid.element, this.pair, this.search),
      h(
        "aside",
        { class: "pf-results-right", "aria-label": "speed and accuracy" },
        h("h3", {}, "Fast and still right: at the top on the left"),
        this.scatter.element,
        h("p", { class: "pf-note" }, "Line: nothing tried is both faster and more accurate."),
        h("p", { class: "pf-note" }, "Ring: not faster than it came, as far as can be told."),
        this.take,
      ),
    );
    root.append(
      h(
        "section",
        { class: "pf-view pf-results", "aria-label": "everything tried" },
        this.empty,
        this.whole,
      ),
    );
    this.onChange = () => this.follow();
    for (const name of FOLLOWS) model?.on(`change:${name}`, this.onChange);
  }

  get state() {
    return this.model?.get("state") ?? null;
  }

  /** @returns {import("./grid.js").Choices} */
  get choices() {
    return {
      marks: this.marks,
      going: this.going,
      isInBench: Boolean(this.state),
      mark: (number) => this.mark(number),
      press: (request) => this.host.ask(request),
    };
  }

  /** @param {ResultsData} data */
  show(data) {
    this.data = data?.rows ? data : null;
    this.drawn = "";
    if (this.data) {
      this.grid.showData(this.data);
      this.scatter.show(
        /** @type {import("../shared/picture.js").Picture} */ (unpackedPicture(this.data.scatter)),
      );
    }
    this.follow();
  }

  destroy() {
    this.scatter.destroy();
    this.grid.destroy();
    for (const name of FOLLOWS) this.model?.off(`change:${name}`, this.onChange);
  }

  /** The requests of a kind that Python has not answered. @param {string} name @returns {any[]} */
  asked(name) {
    return this.model ? unserved(this.model).filter((request) => request.do === name) : [];
  }

  /** Redraw what a request or the state changed. */
  follow() {
    const asked = [...this.asked("go_back"), ...this.asked("allow_result")];
    this.going = asked.at(-1)?.number ?? null;
    const pair = this.data?.pair ?? null;
    this.marks = marksWith(this.marks, pair, this.asked("compare_results").length > 0);
    if (this.state) this.drawTake();
    const { status } = this.state ?? {};
    this.scatter.select(String(this.data?.current ?? ""));
    const key = JSON.stringify([this.going, this.marks, this.data ? "" : status]);
    if (key === this.drawn) return;
    this.drawn = key;
    this.whole.hidden = !this.data;
    this.empty.hidden = Boolean(this.data);
    if (!this.data) return this.drawEmpty(status);
    const { isInBench } = this.choices;
    this.grid.refresh();
    this.drawPair(isInBench);
    fresh(this.search, this.data.search && plainTable(this.data.search));
    this.take.hidden = !isInBench;
  }

  /** @param {string | undefined} status */
  drawEmpty(status) {
    const isBusy = status !== undefined && status !== "idle";
    fresh(
      this.empty,
      h("p", {}, "What did each thing you tried do to speed, accuracy and size?"),
      isBusy || !this.state
        ? h("p", { class: "pf-note" }, isBusy ? "The model is being measured as it came …" : "")
        : h(
            "button",
            { type: "button", class: "pf-button", onclick: () => this.host.ask({ do: "measure" }) },
            "Measure · 10 s",
          ),
    );
  }

  /** @param {number} number */
  mark(number) {
    const before = this.marks;
    this.marks = marksAfter(before, number);
    if (this.marks.length === 2) this.host.ask({ do: "compare_results", numbers: this.marks });
    else if (before.length === 2) this.host.ask({ do: "compare_results", numbers: [] });
    this.follow();
  }

  /** @param {boolean} isInBench */
  drawPair(isInBench) {
    const { marks } = this;
    const pair = this.data?.pair;
    const note = (/** @type {string} */ text) => h("p", { class: "pf-note" }, text);
    if (marks.length < 2) {
      const more = marks.length
        ? "Mark a second one to compare."
        : "Mark two to compare them: A, then B.";
      fresh(this.pair, isInBench && note(more));
    } else if (pair?.first === marks[0] && pair.second === marks[1]) {
      const { table, difference } = pair;
      fresh(this.pair, plainTable(table), h("p", {}, difference), pair.note && note(pair.note));
    } else fresh(this.pair, note("They are being compared …"));
  }

  /** @param {string} request */
  canTake(request) {
    return request === "report" || Boolean(this.data?.current);
  }

  /** @param {string} request @param {string} label */
  takeButton(request, label) {
    const onclick = () => this.canTake(request) && this.host.ask({ do: request });
    return h("button", { type: "button", class: "pf-step", onclick }, label);
  }

  /** The buttons stay, so that the pressed one keeps the focus. */
  drawTake() {
    const current = this.data?.current;
    const isSaving = (askingOf(this.model, SAVE_FOLDER)?.phase ?? "idle") !== "idle";
    for (const { ask: request, hint } of TAKE) {
      const button = /** @type {HTMLElement} */ (this.takes.get(request));
      const can = this.canTake(request);
      const isAsked = this.asked(request).length > 0 || (request === "save_folder" && isSaving);
      showPress(button, can, isAsked);
      button.title = can ? hint : "choose a recipe first";
    }
    write(this.taking, `Take it with you${current ? `: ${current}, here now` : ""}`);
    write(this.taken, isSaving ? "the folder is being saved …" : this.state.taken);
  }
}

/**
 * Set a text if it is another one: what is written is announced.
 * @param {HTMLElement} box @param {string} text
 */
function write(box, text) {
  if (box.textContent !== text) fresh(box, text);
}
