/** Whether data are unchanged although sent again, by the stamp that Python adds. */

/** @param {any} first @param {any} second */
export function isSameData(first, second) {
  return first === second || (first?.stamp !== undefined && first.stamp === second?.stamp);
}
