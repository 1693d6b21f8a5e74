/** How a predicted saving is known, in words: as `records/explanation.py` writes it. */

/** @type {Record<string, string>} */
const WORDS = { measured: "timed alone", "mostly measured": "mostly timed alone" };

/** "measured" → "timed alone": in the model only a comparison measures it. @param {string} basis */
export function basisText(basis) {
  return WORDS[basis] ?? basis;
}
