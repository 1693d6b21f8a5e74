/** How much room a text takes, without asking the page: close enough to keep labels apart. */

const NARROW_LETTERS = new Set("iljtfrI.,:;|!'()[]{} ·");
const BROAD_LETTERS = new Set("mwMWQGO@%—…");

/**
 * The width in pixels of a text in a sans-serif font, a little more rather than less.
 * @param {string} text @param {number} size of the font in pixels
 */
export function textWidth(text, size) {
  let units = 0;
  for (const letter of text) units += letterWidth(letter);
  return units * size;
}

/**
 * "stages.0.layers.1.layer.1.convolution", 20 → "stages…r.1.convolution": the end distinguishes
 * layers.
 * @param {string} text @param {number} most letters
 */
export function withoutMiddle(text, most) {
  const letters = [...text];
  if (letters.length <= most) return text;
  const tail = Math.floor((2 * most) / 3);
  const head = Math.max(1, most - tail - 1);
  return `${letters.slice(0, head).join("")}…${letters.slice(-tail).join("")}`;
}

/** @param {string} letter */
function letterWidth(letter) {
  if (letter > "\u2e80") return 1.05;
  if (NARROW_LETTERS.has(letter)) return 0.34;
  if (BROAD_LETTERS.has(letter)) return 0.9;
  return letter >= "A" && letter <= "Z" ? 0.7 : 0.58;
}
