/** The recipe as an ordered row of chips, and the offers beside it. */

import { fresh, h } from "../shared/dom.js";
import { threeFigures } from "../shared/format.js";

/** @typedef {import("./expected.js").Chip} Chip */
/** @typedef {import("./expected.js").Offer} Offer */

/**
 * A list that is redrawn only when its items changed, and then keeps the focus at the same or the
 * previous item.
 * @template T @param {HTMLElement} list @param {(item: T, place: number) => Node} draw @param {()
 * => Node} drawNone
 * @returns {(items: T[]) => void}
 */
export function listOf(list, draw, drawNone) {
  let drawn = "";
  return (items) => {
    const key = JSON.stringify(items);
    if (key === drawn) return;
    drawn = key;
    const place = buttonsIn(list).indexOf(
      /** @type {HTMLButtonElement} */ (document.activeElement),
    );
    fresh(list, ...(items.length ? items.map(draw) : [drawNone()]));
    if (place < 0) return;
    const buttons = buttonsIn(list);
    (buttons[Math.min(place, buttons.length - 1)] ?? list).focus();
  };
}

/**
 * @param {(index: number, label: string) => void} onDrop @returns {{ element: HTMLElement, show:
 * (chips: Chip[]) => void }}
 */
export function recipeChips(onDrop) {
  const element = h("ol", {
    class: "pf-steps",
    "aria-label": "recipe, in the order in which it is applied",
    tabindex: "-1",
  });
  const none = () => h("li", { class: "pf-no-chip" }, "no step yet: this is the model as it is");
  return {
    element,
    show: listOf(element, (chip, index) => drawChip(chip, () => onDrop(index, chip.label)), none),
  };
}

/**
 * @param {(step: any) => void} onTake @returns {{ element: HTMLElement, show: (offers: Offer[]) =>
 * void }}
 */
export function offerButtons(onTake) {
  const list = h("ul", { class: "pf-offers", "aria-label": "what would help", tabindex: "-1" });
  const element = h(
    "div",
    { class: "pf-offer-line" },
    h("span", { class: "pf-lead" }, "what would help"),
    list,
  );
  const show = listOf(
    list,
    (/** @type {Offer} */ offer) => drawOffer(offer, () => onTake(offer.step)),
    () => h("li", {}),
  );
  return {
    element,
    show(offers) {
      element.hidden = !offers.length;
      show(offers);
    },
  };
}

/** The saving of an offer: "−0.9 ms, estimated". @param {Offer} offer */
export function savingText(offer) {
  if (offer.saves_ms === null || offer.saves_ms === undefined) return "";
  const size = `${offer.saves_ms < 0 ? "+" : "−"}${threeFigures(Math.abs(offer.saves_ms))} ms`;
  return offer.basis ? `${size}, ${offer.basis}` : size;
}

/** @param {Chip} chip @param {() => void} onclick */
function drawChip(chip, onclick) {
  const state = [
    chip.isPending && "pf-asked",
    chip.isLeaving && "pf-leaving",
    chip.error && "pf-failed",
  ]
    .filter(Boolean)
    .join(" ");
  const cross = h(
    "button",
    { type: "button", "aria-label": `drop ${chip.label}`, title: "drop this step", onclick },
    "×",
  );
  return h(
    "li",
    {
      class: `pf-chip ${state}`,
      title: [chip.error || chip.why, chip.note].filter(Boolean).join("\n"),
    },
    h("span", {}, chip.label),
    chip.note && h("small", {}, chip.note),
    !chip.isPending && !chip.isLeaving && cross,
  );
}

/** @param {Offer} offer @param {() => void} onTake */
function drawOffer(offer, onTake) {
  const isTaken = Boolean(offer.is_taken);
  const state = `pf-offer ${offer.isPending ? "pf-asked" : ""}`;
  return h(
    "li",
    {},
    h(
      "button",
      {
        type: "button",
        class: state,
        title: offer.why,
        "aria-disabled": isTaken && "true",
        onclick: () => !isTaken && onTake(),
      },
      isTaken ? "✓ " : "",
      offer.label,
      savingText(offer) && h("small", {}, savingText(offer)),
    ),
  );
}

/** @param {HTMLElement} list */
function buttonsIn(list) {
  return [...list.querySelectorAll("button")];
}
