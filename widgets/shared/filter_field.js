/** The field that filters the table, with how many layers it leaves. */

import { h } from "./dom.js";

/**
 * @param {{ onChange: (query: string) => void, onLeave: (isChosen: boolean) => void }} handlers
 * `isChosen`: the first match is wanted
 * @returns {{ element: HTMLElement, focus: () => void, clear: () => void, count: (found: number |
 * null, all: number) => void }}
 *   `found` is null where nothing is filtered
 */
export function filterField(handlers) {
  const input = /** @type {HTMLInputElement} */ (
    h("input", {
      type: "search",
      class: "pf-filter",
      placeholder: "filter layers  /",
      "aria-label": "filter layers by path or kind",
      "aria-keyshortcuts": "/",
      spellcheck: "false",
      autocomplete: "off",
    })
  );
  const count = h("span", { class: "pf-found", role: "status" });
  input.addEventListener("input", () => handlers.onChange(input.value));
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && event.key !== "Enter" && event.key !== "ArrowDown") return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Escape") clear();
    handlers.onLeave(event.key !== "Escape");
  });

  function clear() {
    if (!input.value) return;
    input.value = "";
    handlers.onChange("");
  }

  return {
    element: h("div", { class: "pf-tools", role: "search" }, count, input),
    focus() {
      input.focus();
      input.select();
    },
    clear,
    count(matches, all) {
      count.textContent =
        matches === null ? `${all} ${all === 1 ? "layer" : "layers"}` : `${matches} of ${all}`;
    },
  };
}
