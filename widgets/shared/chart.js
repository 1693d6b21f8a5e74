/** Shared parts of the charts: width, hover card, and keyboard movement through marks. */

import { fresh, h } from "./dom.js";
import { clamped } from "./scale.js";

let idsGiven = 0;

/** An id that no other element of the page has. @param {string} stem */
export function freshId(stem) {
  idsGiven += 1;
  return `pf-${stem}-${idsGiven}`;
}

/**
 * Call `draw` when an element's width changes; returns a function that stops it.
 * @param {Element} element @param {(width: number) => void} draw @returns {() => void}
 */
export function onWidth(element, draw) {
  let drawn = 0;
  let frame = 0;
  const observer = new ResizeObserver((entries) => {
    const width = Math.floor(entries[entries.length - 1].contentRect.width);
    if (width === 0) drawn = 0; // what came while it was hidden is drawn once it is seen
    if (width === drawn) return;
    drawn = width;
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => draw(width));
  });
  observer.observe(element);
  return () => {
    observer.disconnect();
    cancelAnimationFrame(frame);
  };
}

/**
 * The index that a key moves to; the same index for other keys.
 * @param {string} key @param {number} at -1 is nowhere yet @param {number} count
 */
export function indexAfterKey(key, at, count) {
  if (count === 0) return -1;
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  if (key === "ArrowRight" || key === "ArrowDown") return Math.min(at + 1, count - 1);
  if (key === "ArrowLeft" || key === "ArrowUp") return Math.max(at - 1, 0);
  return at;
}

/**
 * The position of a card beside a spot, inside its box: right, or left if there is no room.
 * @param {{x: number, y: number}} spot @param {{width: number, height: number}} card
 * @param {{width: number, height: number}} box @returns {{x: number, y: number}}
 */
export function cardPlace(spot, card, box) {
  const gap = 14;
  const isRoomRight = spot.x + gap + card.width <= box.width;
  const isRoomLeft = spot.x - gap - card.width >= 0;
  const x = isRoomRight
    ? spot.x + gap
    : isRoomLeft
      ? spot.x - gap - card.width
      : clamped(spot.x - card.width / 2, 0, Math.max(0, box.width - card.width));
  const beside = isRoomRight || isRoomLeft ? spot.y - card.height / 2 : spot.y + gap;
  return { x, y: clamped(beside, 0, Math.max(0, box.height - card.height)) };
}

/** Beside a mark: a heading, a line under it, and figures with their names. */
export class HoverCard {
  /** @param {HTMLElement} box what it stays in */
  constructor(box) {
    this.box = box;
    this.element = h("div", { class: "pf-card", "aria-hidden": "true", hidden: true });
    box.append(this.element);
  }

  /**
   * @param {{x: number, y: number}} spot @param {string} heading @param {string} line @param
   * {[string, string][]} figures
   */
  show(spot, heading, line, figures) {
    const rows = figures.flatMap(([value, name]) => [h("b", {}, value), h("span", {}, name)]);
    fresh(
      this.element,
      h("strong", {}, heading),
      h("em", {}, line),
      h("div", { class: "pf-card-figures" }, ...rows),
    );
    this.element.hidden = false;
    const card = { width: this.element.offsetWidth, height: this.element.offsetHeight };
    const place = cardPlace(spot, card, {
      width: this.box.clientWidth,
      height: this.box.clientHeight,
    });
    this.element.setAttribute(
      "style",
      `transform: translate(${Math.round(place.x)}px, ${Math.round(place.y)}px)`,
    );
  }

  hide() {
    this.element.hidden = true;
  }
}
