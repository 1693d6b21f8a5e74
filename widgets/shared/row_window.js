/**
 * A list of any length of which only what is to be seen is in the page: rows of one height, used
 * again as they scroll by.
 */

/**
 * The rows that a look through a window of `height` needs, with some to spare on both sides.
 * @param {number} top @param {number} height @param {number} rowHeight @param {number} count @param
 * {number} [spare]
 * @returns {{ first: number, last: number }} `last` is the one behind
 */
export function windowOf(top, height, rowHeight, count, spare = 8) {
  const first = Math.max(0, Math.floor(top / rowHeight) - spare);
  const last = Math.min(count, Math.ceil((top + height) / rowHeight) + spare);
  return { first: Math.min(first, last), last };
}

/**
 * How far to scroll so that a row can be seen whole; as little as that takes.
 * @param {number} top @param {number} height @param {number} rowHeight @param {number} index
 * @returns {number}
 */
export function scrolledTo(top, height, rowHeight, index) {
  const [above, below] = [index * rowHeight, (index + 1) * rowHeight];
  if (above < top) return above;
  return below > top + height ? below - height : top;
}

export class RowWindow {
  /**
   * @param {{ scroller: HTMLElement, body: HTMLElement, rowHeight: number, headHeight: () =>
   * number, make: () => HTMLElement,
   *   draw: (row: HTMLElement, index: number) => void, keep: () => number }} given
   *   `draw` fills a row that may have shown another index; `keep` is an index that always stays in
   *   the page, or -1
   */
  constructor(given) {
    this.given = given;
    this.count = 0;
    /** @type {Map<number, HTMLElement>} */
    this.rows = new Map();
    this.waiting = 0;
    this.onScroll = () => {
      if (!this.waiting) this.waiting = requestAnimationFrame(() => this.follow());
    };
    given.scroller.addEventListener("scroll", this.onScroll, { passive: true });
  }

  /** What can be seen of the rows, in pixels. */
  get height() {
    return Math.max(0, this.given.scroller.clientHeight - this.given.headHeight());
  }

  /** Draw all anew, for rows that changed. @param {number} count */
  renew(count) {
    this.count = count;
    this.given.body.style.height = `${count * this.given.rowHeight}px`;
    this.follow(true);
  }

  /** Draw what came into view, with the rows that left it. @param {boolean} [isAnew] */
  follow(isAnew = false) {
    cancelAnimationFrame(this.waiting);
    this.waiting = 0;
    const wanted = this.wanted();
    const free = [...this.rows.keys()].filter((index) => !wanted.has(index));
    for (const index of wanted) {
      const isThere = this.rows.has(index);
      if (!isThere) this.use(index, free.pop());
      if (!isThere || isAnew)
        this.given.draw(/** @type {HTMLElement} */ (this.rows.get(index)), index);
    }
    for (const index of free) this.leave(index);
  }

  /** Scroll as little as it takes to see a row. @param {number} index */
  reveal(index) {
    const { scroller, rowHeight } = this.given;
    const top = scrolledTo(scroller.scrollTop, this.height, rowHeight, index);
    if (top !== scroller.scrollTop) scroller.scrollTop = top;
    this.follow();
  }

  /**
   * Do something with each row that is in the page.
   * @param {(row: HTMLElement, index: number) => void} what
   */
  each(what) {
    for (const [index, row] of this.rows) what(row, index);
  }

  destroy() {
    cancelAnimationFrame(this.waiting);
    this.given.scroller.removeEventListener("scroll", this.onScroll);
  }

  /** @returns {Set<number>} */
  wanted() {
    const { first, last } = windowOf(
      this.given.scroller.scrollTop,
      this.height,
      this.given.rowHeight,
      this.count,
    );
    const wanted = new Set(Array.from({ length: last - first }, (_, place) => first + place));
    const kept = this.given.keep();
    if (kept >= 0 && kept < this.count) wanted.add(kept);
    return wanted;
  }

  /**
   * Put a row that is no longer needed, or a new one, in the place of an index.
   * @param {number} index @param {number | undefined} old
   */
  use(index, old) {
    const row =
      old === undefined ? this.given.make() : /** @type {HTMLElement} */ (this.rows.get(old));
    if (old !== undefined) this.rows.delete(old);
    this.rows.set(index, row);
    row.style.transform = `translateY(${index * this.given.rowHeight}px)`;
    if (old === undefined) this.given.body.append(row);
  }

  /** @param {number} index */
  leave(index) {
    this.rows.get(index)?.remove();
    this.rows.delete(index);
  }
}
