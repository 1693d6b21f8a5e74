/** A segmented control: one of a few choices, side by side. */

import { h, set } from "./dom.js";
import { rovingTabindex } from "./roving_tabindex.js";

/**
 * @param {string} label what is chosen @param {[string, string][]} choices names and their labels
 * @param {(name: string) => void} onChoose
 * @returns {{ element: HTMLElement, show: (name: string) => void }}
 */
export function segmentedControl(label, choices, onChoose) {
  const buttons = choices.map(([name, text]) => {
    const choose = () => onChoose(name);
    const attributes = { role: "radio", type: "button", "aria-checked": "false" };
    return h("button", { ...attributes, onclick: choose, onfocus: choose }, text);
  });
  const element = h("div", { class: "pf-choice", role: "radiogroup", "aria-label": label });
  element.append(...buttons);
  const stopAt = rovingTabindex(element, "button");
  return {
    element,
    show(name) {
      choices.forEach(([other], at) =>
        set(buttons[at], { "aria-checked": String(other === name) }),
      );
      stopAt(element.querySelector('[aria-checked="true"]'));
    },
  };
}
