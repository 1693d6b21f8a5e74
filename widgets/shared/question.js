/** The place of an answer that is not measured yet: its question, its cost in seconds, its progress. */

import { fresh, h, set } from "./dom.js";
import { unserved } from "./host.js";
import { showPress } from "./press.js";

/**
 * `query` as Python names it, `request` that starts it, `use` what the answer is good for, `verb` of
 * the button where it is not "Measure", `field` a text that a picture's question sends along.
 * @typedef {{ query: string, request: string, question: string, use: string,
 * verb?: string, field?: string, hint?: string }} QuestionText
 * @typedef {{ phase: "idle" | "waiting" | "running", seconds: number, done: number, total: number,
 * isStopping: boolean }} Asking
 */

/**
 * How far a query is; null where the panel is not in a workbench, or Python has no such query.
 * @param {any} model @param {{ query: string, request: string }} text @returns {Asking | null}
 */
export function askingOf(model, { query, request }) {
  const state = model.get("state");
  const known = state?.queries?.[query];
  if (!known) return null;
  const asked = unserved(model).map((open) => open.do);
  const isWaiting = known.is_waiting || asked.includes(request);
  return {
    phase: known.is_running ? "running" : isWaiting ? "waiting" : "idle",
    seconds: known.seconds,
    done: known.is_running ? state.done : 0,
    total: known.is_running ? state.total : 0,
    isStopping: unserved(model).some((open) => isStopOf(open, query)),
  };
}

/**
 * Whether a request stops a query, alone or with all others.
 * @param {any} open @param {string} query
 */
function isStopOf(open, query) {
  return open.do === "stop" && (open.query ?? query) === query;
}

/** @param {number} seconds @param {boolean} isKnown @param {string} [verb] */
export function measureText(seconds, isKnown, verb = "Measure") {
  return `${isKnown ? "Again" : verb} · ${secondsText(seconds)}`;
}

/** What the place says of a query that is asked for; "" when it is not. @param {Asking} asking */
export function askingText({ phase, done, total }) {
  if (phase === "waiting") return "waits until the running measurement is done";
  if (phase === "idle") return "";
  return total > 0 ? `${Math.min(done, total)} of ${secondsText(total)}` : "measuring";
}

/** @param {number} seconds */
function secondsText(seconds) {
  return `${Number(seconds.toPrecision(2))} s`;
}

export class Question {
  /**
   * @param {any} model @param {(request: any) => void} ask @param {QuestionText} text
   * @param {{ fields?: HTMLElement[], options?: () => Record<string, any> | null }} [more] form
   * fields before the button, and their values as the request's options; null if they are invalid
   */
  constructor(model, ask, text, { fields = [], options = () => ({}) } = {}) {
    this.model = model;
    this.text = text;
    this.drawn = "";
    this.isKnown = false;
    this.words = h(
      "div",
      {},
      h("h2", {}, text.question),
      h("p", { class: "pf-note pf-ask-use" }, text.use),
    );
    this.button = h("button", { type: "submit", class: "pf-button" });
    this.bar = h("progress", { "aria-label": "progress of this answer" });
    this.far = h("span", { class: "pf-note" }); // not announced: it changes each second
    const stop = () => ask({ do: "stop", query: text.query });
    const title = "stop; what was found until now is kept";
    this.stop = h("button", { type: "button", class: "pf-stop", title, onclick: stop }, "Stop");
    const row = [...fields, this.button, this.bar, this.far, this.stop];
    this.form = h("form", { class: "pf-ask-row" }, ...row);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const given = this.isIdle ? options() : null;
      if (given) ask({ do: text.request, ...given });
    });
    this.element = h("div", { class: "pf-ask", hidden: true }, this.words, this.form);
  }

  get isIdle() {
    return askingOf(this.model, this.text)?.phase === "idle";
  }

  /** Show the question, or below a known answer only its button. @param {boolean} isKnown */
  show(isKnown) {
    const asking = askingOf(this.model, this.text);
    const key = JSON.stringify([asking, isKnown]);
    if (key === this.drawn) return;
    this.drawn = key;
    this.element.hidden = !asking;
    if (!asking) return;
    const isIdle = asking.phase === "idle";
    this.words.hidden = isKnown;
    showPress(this.button, isIdle, !isIdle, measureText(asking.seconds, isKnown, this.text.verb));
    set(this.button, { title: "in the background; the page can be used meanwhile" });
    this.bar.hidden = asking.phase !== "running";
    this.stop.hidden = isIdle;
    this.stop.classList.toggle("pf-asked", asking.isStopping);
    fresh(this.far, askingText(asking));
    if (asking.total > 0)
      set(this.bar, { max: asking.total, value: Math.min(asking.done, asking.total) });
    else set(this.bar, { max: null, value: null });
  }
}
