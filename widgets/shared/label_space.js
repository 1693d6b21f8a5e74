/** Label placement: near the dot, over no other label, over as few dots and lines as possible. */

/**
 * @typedef {{ x: number, y: number }} Spot
 * @typedef {{ x: number, y: number, width: number, height: number }} Box
 */

const RINGS = [0.7, 1.4, 2.4, 3.6, 5, 7]; // in heights of the label
const ANGLES = 16;
const COST = { outside: 1000, overLabel: 1000, crossing: 30, overLine: 12, overDot: 6 };

/** A drawing's free room in pixels; it fills as labels are placed. */
export class LabelSpace {
  /**
   * @param {Box} inside @param {Box[]} taken @param {Spot[]} lines spots that are better not
   * covered @param {Spot[]} dots
   */
  constructor(inside, taken, lines, dots) {
    this.inside = inside;
    this.labels = [...taken];
    this.lines = lines;
    this.dots = dots;
    /** @type {Spot[][]} */
    this.leaders = [];
  }

  /**
   * Reserve the best box for a dot's label; null if every box would leave the drawing or cover a
   * label.
   * @param {number} width @param {number} height @param {Spot} dot @param {number} radius @returns
   * {Box | null}
   */
  place(width, height, dot, radius) {
    let best = null;
    let least = COST.outside;
    for (const box of boxesAround(width, height, dot, radius)) {
      const cost = this.costOf(box, dot);
      if (cost < least) [best, least] = [box, cost];
    }
    if (best) this.take(best, dot);
    return best;
  }

  /** @param {Box} box @param {Spot} dot */
  take(box, dot) {
    this.labels.push(box);
    this.leaders.push(spotsBetween(dot, middleOf(box)));
  }

  /** @param {Box} box @param {Spot} dot */
  costOf(box, dot) {
    const leader = spotsBetween(dot, middleOf(box));
    const crossed = this.leaders.flat().filter((spot) => holds(box, spot)).length;
    const cut = this.labels.flatMap((label) => leader.filter((spot) => holds(label, spot))).length;
    return (
      distance(dot, middleOf(box)) / box.height +
      COST.outside * Number(!isInside(box, this.inside)) +
      COST.overLabel * this.labels.filter((label) => overlap(box, label, 2)).length +
      COST.crossing * (crossed + cut) +
      COST.overLine * Number(this.lines.some((spot) => holds(box, spot))) +
      COST.overDot * this.dots.filter((spot) => holds(box, spot, 3)).length
    );
  }
}

/**
 * Which dots are named, the first of each cluster, and how many others stand near it.
 * @param {Spot[]} dots @param {number} near @returns {{ index: number, others: number }[]}
 */
export function clusters(dots, near) {
  /** @type {{ index: number, others: number }[]} */
  const heads = [];
  dots.forEach((dot, index) => {
    const head = heads.find((head) => distance(dots[head.index], dot) < near);
    if (head) head.others += 1;
    else heads.push({ index, others: 0 });
  });
  return heads;
}

/**
 * Whether two boxes share room, or stand nearer than a margin.
 * @param {Box} first @param {Box} second @param {number} [margin]
 */
export function overlap(first, second, margin = 0) {
  const across =
    first.x < second.x + second.width + margin && second.x < first.x + first.width + margin;
  return (
    across &&
    first.y < second.y + second.height + margin &&
    second.y < first.y + first.height + margin
  );
}

/** @param {Spot} first @param {Spot} second */
export function distance(first, second) {
  return Math.hypot(first.x - second.x, first.y - second.y);
}

/**
 * The ends of the leader from the rim of a dot to the border of its label; null if they touch.
 * @param {Box} box @param {Spot} dot @param {number} radius @returns {[Spot, Spot] | null}
 */
export function leaderOf(box, dot, radius) {
  const near = {
    x: clamped(dot.x, box.x, box.x + box.width),
    y: clamped(dot.y, box.y, box.y + box.height),
  };
  const length = distance(near, dot);
  if (length <= radius + 3) return null;
  const part = radius / length;
  return [{ x: dot.x + (near.x - dot.x) * part, y: dot.y + (near.y - dot.y) * part }, near];
}

/** @param {number} value @param {number} low @param {number} high */
export function clamped(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/**
 * Candidate boxes around a dot, ring after ring; a box beside the dot is offset by half its width.
 * @param {number} width @param {number} height @param {Spot} dot @param {number} radius @returns
 * {Box[]}
 */
function boxesAround(width, height, dot, radius) {
  return RINGS.flatMap((ring) =>
    Array.from({ length: ANGLES }, (_, step) => {
      const angle = (2 * Math.PI * step) / ANGLES;
      const x = dot.x + Math.cos(angle) * (ring * height + radius + width / 2);
      const y = dot.y + Math.sin(angle) * ((ring + 0.5) * height + radius);
      return { x: x - width / 2, y: y - height / 2, width, height };
    }),
  );
}

/** @param {Box} box @param {Box} outer */
function isInside(box, outer) {
  const across = box.x >= outer.x && box.x + box.width <= outer.x + outer.width;
  return across && box.y >= outer.y && box.y + box.height <= outer.y + outer.height;
}

/** @param {Box} box @param {Spot} spot @param {number} [margin] */
function holds(box, spot, margin = 0) {
  const across = spot.x > box.x - margin && spot.x < box.x + box.width + margin;
  return across && spot.y > box.y - margin && spot.y < box.y + box.height + margin;
}

/** @param {Box} box @returns {Spot} */
function middleOf(box) {
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
}

/** @param {Spot} start @param {Spot} end @returns {Spot[]} */
function spotsBetween(start, end) {
  return Array.from({ length: 12 }, (_, step) => ({
    x: start.x + ((end.x - start.x) * step) / 12,
    y: start.y + ((end.y - start.y) * step) / 12,
  }));
}
