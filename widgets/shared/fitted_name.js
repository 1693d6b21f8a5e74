/** Names cut in the middle, only as far as their room asks for. */

import { withoutMiddle } from "./lettering.js";

/** @typedef {(text: string) => number} Measure the width of a text in pixels */

/**
 * The longest form of a name that fits: its tail stays, and a few letters of its head.
 * @param {string} name @param {number} room in pixels @param {Measure} measure
 */
export function fittedName(name, room, measure) {
  if (measure(name) <= room) return name;
  let [least, most] = [2, [...name].length - 1];
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (measure(withoutMiddle(name, middle)) <= room) least = middle;
    else most = middle - 1;
  }
  return withoutMiddle(name, least);
}

/** @type {Map<string, Measure>} */
const MEASURES = new Map();

/**
 * Measures texts in the font of an element.
 * @param {HTMLElement} element @param {number} [weight] @returns {Measure}
 */
export function measureIn(element, weight = 400) {
  const style = getComputedStyle(element);
  const font = `${weight} ${style.fontSize} ${style.fontFamily}`;
  const known = MEASURES.get(font);
  if (known) return known;
  const context = document.createElement("canvas").getContext("2d");
  /** @type {Measure} */
  const measure = (text) => {
    if (!context) return 7 * text.length;
    context.font = font;
    return context.measureText(text).width;
  };
  MEASURES.set(font, measure);
  return measure;
}
