/**
 * A virtual list: only visible rows are in the page; rows have one height and are reused on scroll.
 */

/**
 * The rows visible in a window of `height`, with spare ones on both sides.
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
   *   draw: (row: HTMLElement, index: number) => void, keep: () => number }} options
   *   `draw` fills a row that may have shown another index; `keep` is an index that always stays in
   *   the page, or -1
   */
  constructor(options) {
    this.options = options;
    this.count = 0;
    /** @type {Map<number, HTMLElement>} */
    this.rows = new Map();
    this.waiting = 0;
    this.onScroll = () => {
      if (!this.waiting) this.waiting = requestAnimationFrame(() => this.follow());
    };
    options.scroller.addEventListener("scroll", this.onScroll, { passive: true });
  }

  /** The visible height of the rows, in pixels. */
  get height() {
    return Math.max(0, this.options.scroller.clientHeight - this.options.headHeight());
  }

  /** Redraw all rows. @param {number} count */
  renew(count) {
    this.count = count;
    this.options.body.style.height = `${count * this.options.rowHeight}px`;
    this.follow(true);
  }

  /** Draw the rows that came into view, reusing those that left it. @param {boolean} [isAnew] */
  follow(isAnew = false) {
    cancelAnimationFrame(this.waiting);
    this.waiting = 0;
    const visible = this.visible();
    const free = [...this.rows.keys()].filter((index) => !visible.has(index));
    for (const index of visible) {
      const isThere = this.rows.has(index);
      if (!isThere) this.use(index, free.pop());
      if (!isThere || isAnew)
        this.options.draw(/** @type {HTMLElement} */ (this.rows.get(index)), index);
    }
    for (const index of free) this.leave(index);
  }

  /** Scroll as little as it takes to see a row. @param {number} index */
  reveal(index) {
    const { scroller, rowHeight } = this.options;
    const top = scrolledTo(scroller.scrollTop, this.height, rowHeight, index);
    if (top !== scroller.scrollTop) scroller.scrollTop = top;
    this.follow();
  }

  /**
   * Call a function with each row in the page.
   * @param {(row: HTMLElement, index: number) => void} what
   */
  each(what) {
    for (const [index, row] of this.rows) what(row, index);
  }

  destroy() {
    cancelAnimationFrame(this.waiting);
    this.options.scroller.removeEventListener("scroll", this.onScroll);
  }

  /** None while the list itself has no place in the page. @returns {Set<number>} */
  visible() {
    const { height } = this;
    if (!height) return new Set();
    const { first, last } = windowOf(
      this.options.scroller.scrollTop,
      height,
      this.options.rowHeight,
      this.count,
    );
    const visible = new Set(Array.from({ length: last - first }, (_, place) => first + place));
    const kept = this.options.keep();
    if (kept >= 0 && kept < this.count) visible.add(kept);
    return visible;
  }

  /**
   * Place a free or a new row at an index.
   * @param {number} index @param {number | undefined} old
   */
  use(index, old) {
    const row =
      old === undefined ? this.options.make() : /** @type {HTMLElement} */ (this.rows.get(old));
    if (old !== undefined) this.rows.delete(old);
    this.rows.set(index, row);
    row.style.transform = `translateY(${index * this.options.rowHeight}px)`;
    if (old === undefined) this.options.body.append(row);
  }

  /** @param {number} index */
  leave(index) {
    this.rows.get(index)?.remove();
    this.rows.delete(index);
  }
}
