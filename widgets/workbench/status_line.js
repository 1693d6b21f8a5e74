/**
 * The running job, its progress, and a stop button. The line keeps its room, so that nothing moves
 * when a job starts.
 */

import { fresh, h } from "../shared/dom.js";

/** @typedef {import("./expected.js").Expected} Expected */

/** @type {Record<string, string>} */
const DOINGS = {
  profiling: "profiling",
  applying: "applying",
  measuring: "measuring against the baseline, in turn",
  sensing: "looking at",
  weighing: "looking at",
  coupling: "looking at",
  planning: "planning",
  proving: "measuring",
  fusing: "looking at",
  attending: "looking at",
  recalling: "looking at",
  saving: "saving",
  waiting: "waiting for quiet",
};

const WORD_MS = 4000;

/** The running job as text; "" when idle. @param {{ status: string, doing: string }} state */
export function doingText(state) {
  if (state.status === "idle") return "";
  return [DOINGS[state.status] ?? state.status, state.doing].filter(Boolean).join(": ");
}

/**
 * A word of the page, and the running job.
 * @param {{ status: string, doing: string }} state @param {string} word
 * @param {boolean} isRecent whether the word was said a moment ago
 */
export function lineText(state, word, isRecent) {
  const doing = doingText(state);
  if (!doing) return word;
  return isRecent && word ? `${word} · ${doing}` : doing;
}

/** The progress: "12 of 30"; "" if unknown. @param {{ done: number, total: number }} state */
export function farText(state) {
  return state.total > 0 ? `${Math.min(state.done, state.total)} of ${state.total}` : "";
}

/**
 * @param {() => void} onStop
 * @returns {{ element: HTMLElement, show: (state: Expected) => void, say: (text: string) => void }}
 * `say`: a word that stays until the next job; before a running one it stands for four seconds
 */
export function statusLine(onStop) {
  const bar = /** @type {HTMLProgressElement} */ (h("progress", { "aria-label": "progress" }));
  const doing = h("span", { class: "pf-doing", role: "status", "aria-live": "polite" });
  const far = h("span", { class: "pf-far", "aria-hidden": "true" });
  const stop = h(
    "button",
    {
      type: "button",
      class: "pf-stop",
      title: "stop; what was measured until now is kept",
      onclick: onStop,
    },
    "Stop",
  );
  let word = "";
  let isRecent = false;
  let shown = { status: "idle", doing: "" };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  function write() {
    const text = lineText(shown, word, isRecent);
    if (doing.textContent !== text) fresh(doing, text);
    doing.title = text;
  }

  return {
    element: h("div", { class: "pf-status" }, bar, doing, far, stop),
    show(state) {
      const isBusy = state.status !== "idle";
      if (isBusy && !isRecent) word = "";
      shown = { status: state.status, doing: state.doing };
      write();
      fresh(far, isBusy ? farText(state) : "");
      setBar(bar, state);
      bar.classList.toggle("pf-still", !isBusy);
      stop.classList.toggle("pf-still", !isBusy);
      stop.classList.toggle("pf-asked", state.asked.has("stop"));
    },
    say(text) {
      word = text;
      isRecent = true;
      clearTimeout(timer);
      timer = setTimeout(() => {
        isRecent = false;
        write();
      }, WORD_MS);
      write();
    },
  };
}

/** @param {HTMLProgressElement} bar @param {Expected} state */
function setBar(bar, state) {
  if (state.total > 0) {
    bar.max = state.total;
    bar.value = Math.min(state.done, state.total);
  } else bar.removeAttribute("value");
}
