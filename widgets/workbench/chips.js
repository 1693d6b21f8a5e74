/** The recipe as an ordered row of chips, and the offers beside it. */

import { fresh, h } from "../shared/dom.js";
import { threeFigures } from "../shared/format.js";
import { withoutMiddle } from "../shared/lettering.js";
import { overflowing } from "./overflow.js";

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
 * (chips: Chip[]) => void, destroy: () => void }}
 */
export function recipeChips(onDrop) {
  const list = h("ol", {
    class: "pf-steps",
    "aria-label": "recipe, in the order in which it is applied",
    tabindex: "-1",
  });
  const none = () => h("li", { class: "pf-no-chip", title: NO_STEP }, NO_STEP);
  const line = overflowing(list);
  const show = listOf(
    list,
    (/** @type {Chip} */ chip, index) => drawChip(chip, index, () => onDrop(index, chip.label)),
    none,
  );
  return {
    element: line.element,
    show(chips) {
      show(chips);
      line.fit();
    },
    destroy: line.destroy,
  };
}

/**
 * @param {(step: any) => void} onTake @returns {{ element: HTMLElement, show: (offers: Offer[]) =>
 * void }}
 */
export function offerButtons(onTake) {
  const list = h("ul", { class: "pf-offers", "aria-label": "what would help", tabindex: "-1" });
  const element = h("div", { class: "pf-offer-line" }, h("h4", {}, "What would help"), list);
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

/** What is said of an offer: one that is taken saves nothing more. @param {Offer} offer */
export function offerText(offer) {
  return offer.is_taken && !offer.isPending ? "in use" : savingText(offer);
}

/**
 * The saving of an offer, "−0.9 ms, estimated", or what a search measured: "1.9 × faster, measured".
 * @param {Offer} offer
 */
export function savingText(offer) {
  if (offer.effect) return `${offer.effect}, ${offer.basis}`;
  if (offer.saves_ms === null || offer.saves_ms === undefined) return "";
  const size = `${offer.saves_ms < 0 ? "+" : "−"}${threeFigures(Math.abs(offer.saves_ms))} ms`;
  return offer.basis ? `${size}, ${offer.basis}` : size;
}

const MOST_LETTERS = 36;
const NO_STEP = "no step yet: this is the model as it is";

/** @param {Chip} chip @param {number} index @param {() => void} onclick */
function drawChip(chip, index, onclick) {
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
      title: [chip.label, chip.error || chip.why, chip.note].filter(Boolean).join("\n"),
    },
    h("i", { "aria-hidden": "true" }, index + 1),
    h("span", {}, withoutMiddle(chip.label, MOST_LETTERS)),
    !chip.isPending && !chip.isLeaving && cross,
  );
}

/** @param {Offer} offer @param {() => void} onTake */
function drawOffer(offer, onTake) {
  const isTaken = Boolean(offer.is_taken);
  const text = offerText(offer);
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
      text && h("small", {}, text),
    ),
  );
}

/** @param {HTMLElement} list */
function buttonsIn(list) {
  return [...list.querySelectorAll("button")];
}
