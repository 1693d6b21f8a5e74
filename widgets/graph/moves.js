/** Where keys, pointer and zoom lead in a graph. No DOM. */

/**
 * @typedef {{ x: number, y: number, zoom: number }} View
 * @typedef {{ x: ArrayLike<number>, x2: ArrayLike<number>, y: ArrayLike<number>, y2: ArrayLike<number> }} Boxes
 */

const LEAST_ZOOM = 0.02;

/** Zoomed around a spot that stays where it is. @param {View} view @param {number} by @param {number} x @param {number} y @param {number} most @returns {View} */
export function zoomed(view, by, x, y, most) {
  const zoom = Math.min(most, Math.max(LEAST_ZOOM, view.zoom * by));
  const share = zoom / view.zoom;
  return { x: x - (x - view.x) * share, y: y - (y - view.y) * share, zoom };
}

/** The box at a spot; -1 if there is none. @param {Boxes} boxes @param {number} x @param {number} y */
export function nearest(boxes, x, y) {
  return Array.from(boxes.x).findIndex(
    (left, row) => x >= left && x <= boxes.x2[row] && y >= boxes.y[row] && y <= boxes.y2[row],
  );
}

/**
 * Down along an edge, up against one, or to the neighbour in the rank; the same node if there is none.
 * @param {string} key @param {number} at @param {Boxes} boxes @param {number[]} sources @param
 * {number[]} targets
 */
export function nextAlong(key, at, boxes, sources, targets) {
  const away = (/** @type {number} */ node) => Math.abs(boxes.x[node] - boxes.x[at]);
  const isUp = key === "ArrowUp";
  const reached =
    key === "ArrowDown" || isUp
      ? (isUp ? targets : sources).flatMap((end, row) =>
          end === at ? [(isUp ? sources : targets)[row]] : [],
        )
      : Array.from(boxes.y, (_, node) => node).filter(
          (node) =>
            Math.abs(boxes.y[node] - boxes.y[at]) < 1 &&
            (key === "ArrowRight" ? boxes.x[node] > boxes.x[at] : boxes.x[node] < boxes.x[at]),
        );
  return reached.reduce((best, node) => (best < 0 || away(node) < away(best) ? node : best), -1);
}
