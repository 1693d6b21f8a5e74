/** Data that were sent again, and are the same: Python gives what it packed a number. */

/** @param {any} one @param {any} other */
export function isSameData(one, other) {
  return one === other || (one?.stamp !== undefined && one.stamp === other?.stamp);
}
