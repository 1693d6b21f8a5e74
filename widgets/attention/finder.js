/** The form for the kind of sparse attention, and the button that measures its cost. */

import { h } from "../shared/dom.js";
import { showPress } from "../shared/press.js";

/** By the name in Python. @type {Record<string, string>} */
const ATTENTION_KINDS = {
  topk: "the strongest keys of each query",
  block: "the strongest blocks of keys",
  window: "the keys nearby",
};

export class AttentionFinder {
  /**
   * @param {(kind: string) => void} onAsk @param {() => void} onKind another one was chosen, and
   * not yet asked for
   */
  constructor(onAsk, onKind) {
    this.isBusy = false;
    const options = Object.entries(ATTENTION_KINDS).map(([name, words]) =>
      h("option", { value: name }, `${words} (${name})`),
    );
    this.kind = /** @type {HTMLSelectElement} */ (
      h("select", { "aria-label": "kind of attention" }, ...options)
    );
    this.button = h("button", { type: "submit", class: "pf-button", title: "in the background" });
    this.element = h(
      "form",
      { class: "pf-budget-form pf-attention-find" },
      h("span", { class: "pf-lead" }, "attend to"),
      this.kind,
      this.button,
    );
    this.kind.addEventListener("change", onKind);
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.isBusy) onAsk(this.kind.value);
    });
  }

  /** @param {string} kind that is shown */
  choose(kind) {
    if (kind in ATTENTION_KINDS) this.kind.value = kind;
  }

  /** Whether the selected kind is not the shown one. @param {string} shown */
  isOther(shown) {
    return this.kind.value !== shown;
  }

  /** @param {boolean} isBusy @param {boolean} isKnown */
  show(isBusy, isKnown) {
    this.isBusy = isBusy;
    showPress(
      this.button,
      !isBusy,
      isBusy,
      isBusy ? "being found …" : isKnown ? "Find it again" : "Find what attention costs",
    );
  }
}
