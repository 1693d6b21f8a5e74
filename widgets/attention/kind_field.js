/** The field for the kind of sparse attention. */

import { h } from "../shared/dom.js";

/** By the name in Python. @type {Record<string, string>} */
const ATTENTION_KINDS = {
  topk: "the strongest keys of each query",
  block: "the strongest blocks of keys",
  window: "the keys nearby",
};

export class KindField {
  /** @param {() => void} onKind another one was chosen, and not yet asked for */
  constructor(onKind) {
    const options = Object.entries(ATTENTION_KINDS).map(([name, words]) =>
      h("option", { value: name }, `${words} (${name})`),
    );
    this.kind = /** @type {HTMLSelectElement} */ (
      h("select", { "aria-label": "kind of attention" }, ...options)
    );
    this.fields = [h("span", { class: "pf-lead" }, "attend to"), this.kind];
    this.kind.addEventListener("change", onKind);
  }

  get chosen() {
    return this.kind.value;
  }

  /** @param {string} kind that is shown */
  choose(kind) {
    if (kind in ATTENTION_KINDS) this.kind.value = kind;
  }
}
