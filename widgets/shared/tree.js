/**
 * A tree as an array: each row names its parent, parents come first, and a row's descendants follow
 * it without a gap.
 */

/** How far below its root each row is. @param {Int32Array} parent @returns {Uint16Array} */
export function depthsOf(parent) {
  const depth = new Uint16Array(parent.length);
  for (let row = 0; row < parent.length; row += 1)
    depth[row] = parent[row] < 0 ? 0 : depth[parent[row]] + 1;
  return depth;
}

/**
 * For each row the first row behind its descendants.
 * @param {Int32Array} parent @returns {Int32Array}
 */
export function endsOf(parent) {
  const end = Int32Array.from(parent, (_, row) => row + 1);
  for (let row = parent.length - 1; row >= 0; row -= 1) {
    if (parent[row] >= 0) end[parent[row]] = Math.max(end[parent[row]], end[row]);
  }
  return end;
}

/** The tree of a table without branches. @param {number} count */
export function flatTree(count) {
  const parent = new Int32Array(count).fill(-1);
  return { parent, depth: depthsOf(parent), end: endsOf(parent) };
}

/** Whether there is something under a row. @param {Int32Array} end @param {number} row */
export function isBranch(end, row) {
  return end[row] > row + 1;
}

/**
 * The visible rows: all that are not under a closed one.
 * @param {Int32Array} end @param {(row: number) => boolean} isClosed @returns {number[]}
 */
export function openRows(end, isClosed) {
  const rows = [];
  for (let row = 0; row < end.length; row = isClosed(row) ? end[row] : row + 1) rows.push(row);
  return rows;
}

/**
 * The rows above a row, the nearest first.
 * @param {Int32Array} parent @param {number} row @returns {number[]}
 */
export function above(parent, row) {
  const rows = [];
  for (let ancestor = parent[row]; ancestor >= 0; ancestor = parent[ancestor]) rows.push(ancestor);
  return rows;
}

/**
 * A path relative to its ancestor: "layer1.0", "layer1.0.conv1" → "conv1".
 * @param {string} path @param {string} under
 */
export function ownName(path, under) {
  return under && path.startsWith(`${under}.`) ? path.slice(under.length + 1) : path;
}

/**
 * Split a path: a head that may be shortened, and its last parts, which distinguish it.
 * @param {string} path @param {number} kept parts @returns {[string, string]}
 */
export function partedPath(path, kept) {
  const parts = path.split(".");
  const head = parts.slice(0, Math.max(0, parts.length - kept));
  return [head.map((part) => `${part}.`).join(""), parts.slice(head.length).join(".")];
}
