/** Notices: an error, an ended Jupyter kernel, and text to copy by hand. */

import { fresh, h } from "../shared/dom.js";

export const LOST =
  "The Jupyter kernel does not answer yet: a running cell comes first. If none runs, run this cell again.";

/**
 * @param {() => void} onDismiss @param {(number: number) => void} onAllow
 * @returns {{ element: HTMLElement, show: (error: string | null, isLost: boolean, refused: string |
 * null, allowable: number | null) => void }}
 */
export function benchNotices(onDismiss, onAllow) {
  const element = h("div", { class: "pf-notices" });
  const error = h("div", { role: "alert" });
  const lost = h("div", { role: "alert" });
  const limit = h("div", { role: "status" });
  element.append(error, lost, limit);
  let shown = "";
  return {
    element,
    show(text, isLost, refused, allowable) {
      const key = JSON.stringify([isLost, text, refused, allowable]);
      if (key === shown) return;
      shown = key;
      fresh(lost, isLost && h("p", { class: "pf-notice" }, sign(), h("span", {}, LOST)));
      fresh(
        error,
        text && h("p", { class: "pf-notice" }, sign(), h("span", {}, text), dismissal(onDismiss)),
      );
      fresh(
        limit,
        refused &&
          h(
            "p",
            { class: "pf-notice" },
            sign(),
            h("span", {}, `Refused: ${refused}`),
            allowable !== null && allowance(() => onAllow(allowable)),
          ),
      );
    },
  };
}

/**
 * Copy text, or show it to be copied by hand if the page may not write to the clipboard.
 * @param {(text: string) => void} tell
 * @returns {{ element: HTMLElement, copy: (text: string) => Promise<void> }}
 */
export function copyBox(tell) {
  const element = h("div", { class: "pf-copy" });
  return {
    element,
    async copy(text) {
      try {
        await navigator.clipboard.writeText(text);
        fresh(element);
        tell("copied");
      } catch {
        showText(element, text);
        tell("the page may not write to the clipboard; copy the text from here");
      }
    },
  };
}

/** @param {HTMLElement} box @param {string} text */
function showText(box, text) {
  const rows = Math.min(12, text.split("\n").length);
  const attributes = {
    readonly: true,
    rows,
    spellcheck: "false",
    "aria-label": "the recipe as code",
  };
  const area = /** @type {HTMLTextAreaElement} */ (h("textarea", attributes, text));
  fresh(
    box,
    area,
    dismissal(() => fresh(box), "close"),
  );
  area.focus();
  area.select();
}

/** @param {() => void} onclick @param {string} [label] */
function dismissal(onclick, label = "dismiss") {
  return h(
    "button",
    { type: "button", class: "pf-dismiss", "aria-label": label, title: label, onclick },
    "×",
  );
}

/** @param {() => void} onclick */
function allowance(onclick) {
  const title = "choose it all the same: the limit of its recipe becomes what it loses";
  return h("button", { type: "button", class: "pf-button", title, onclick }, "Allow");
}

function sign() {
  return h("b", { "aria-hidden": "true" }, "!");
}
