/** The two rows that are compared: A, then B. No DOM. */

/**
 * The marks after one row more was marked or unmarked; a third takes the place of B.
 * @param {number[]} marks @param {number} number
 */
export function marksAfter(marks, number) {
  if (marks.includes(number)) return marks.filter((other) => other !== number);
  return [...marks.slice(0, 1), number];
}

/**
 * The marks that fit the pair that Python compared, in this view or in another of the same bench.
 * @param {number[]} marks @param {{ first: number, second: number } | null} pair
 * @param {boolean} isAsked whether Python has yet to answer
 */
export function marksWith(marks, pair, isAsked) {
  if (isAsked || marks.length === 1) return marks;
  return pair ? [pair.first, pair.second] : [];
}
