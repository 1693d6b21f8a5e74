/**
 * A picture as `paifuser_lab/views/picture.py` packs it: where its panels, ticks and marks stand at a
 * width. Domains, ticks and texts come from Python. No DOM.
 */

import { readableBytes, readableCount, readableRate, threeFigures } from "./format.js";
import { textWidth, withoutMiddle } from "./lettering.js";
import { clamped, linearScale, logScale } from "./scale.js";
import { float32s, spelledOut } from "./unpack.js";

/**
 * @typedef {ArrayLike<number>} Column
 * @typedef {{ name: string, values: Column | string[], readable: string }} Values
 * @typedef {{ heading: string[] | Values, line: string[], figures: Values[] }} Tips
 * @typedef {{ low: number, high: number, label: string, kind: string, ticks: Column,
 *   names: string[] }} Axis
 * @typedef {{ mark: string, tone: string | string[], style: string, key: string[],
 *   tips: Tips | null, [column: string]: any }} Mark
 * @typedef {{ at: Column, figures: Values[], boxes: Column, start: number, tones: string[],
 *   tone: string }} Handle
 * @typedef {{ x: Axis, y: Axis, marks: Mark[], height: number, handle: Handle | null }} Panel
 * @typedef {{ at: Column, tips: Tips, start: number }} Cursor
 * @typedef {{ caption: string, rows: Record<string, string>[], words: string[] }} Sheet
 * @typedef {{ value: string, name: string, shape: string }} Fact
 * @typedef {{ title: string, label: string, sentence: string, note: string, rows: Panel[][],
 *   legend: [tone: string, name: string, shape?: string][], facts: Fact[], spoken: { line: string, news: string } | null,
 *   photo: DataView | null, items: [string, string][], items_name: string, tables: Sheet[],
 *   below: Picture[], by_layer: [string, Picture][], choice: string,
 *   cursor: Cursor | null }} Picture
 * @typedef {{ value: number, name: string }} Tick
 * @typedef {{ panel: Panel, left: number, right: number, top: number, bottom: number,
 *   x: import("./scale.js").Scale, y: import("./scale.js").Scale, xTicks: Tick[],
 *   yTicks: Tick[] }} Frame
 * @typedef {{ mark: Mark, row: number, key: string, x: number, y: number, width: number,
 *   height: number }} Spot a row of a mark that has a tooltip
 */

/** @type {Record<string, (value: number) => string>} */
const FORMATS = {
  bytes: readableBytes,
  rate: readableRate,
  count: (value) => value.toFixed(0),
  digits: threeFigures,
};
const NARROWEST = 300; // a panel beside another
const BETWEEN = 24;
const LETTERS = 11; // pixels of the ticks' font
const REACH = 4; // around a small mark that is pointed at

/** The picture of the trait `data`; null if there is none. @param {any} data @returns {Picture | null} */
export function unpackedPicture(data) {
  return data?.rows ? unpackedColumns(data) : null;
}

/** What `pictured` packed: a picture, or a handle alone. @param {any} data @returns {any} */
export function unpackedColumns({ columns, ...parts }) {
  return unpacked(parts, columns.map(float32s));
}

/** Places of columns as columns of numbers, codes as texts. @param {any} value @param {Column[]} columns @returns {any} */
function unpacked(value, columns) {
  if (Array.isArray(value)) return value.map((one) => unpacked(one, columns));
  if (value === null || typeof value !== "object" || value instanceof DataView) return value;
  if (value.codes) return spelledOut(value);
  if (value.column !== undefined) return columns[value.column];
  const parts = Object.entries(value).map(([name, of]) => [name, unpacked(of, columns)]);
  return Object.fromEntries(parts);
}

/** The frames of a picture's panels, side by side where there is room. @param {number} width @param {Picture} picture */
export function framesOf(width, picture) {
  /** @type {Frame[]} */
  const frames = [];
  let height = 0;
  const isAlone = picture.rows.filter((row) => row.length === 1).map(([panel]) => panel);
  const common = Math.max(0, ...isAlone.map((panel) => marginOf(panel, width)));
  for (const row of picture.rows) {
    const isBeside = width / row.length >= NARROWEST;
    const each = isBeside ? Math.floor((width - BETWEEN * (row.length - 1)) / row.length) : width;
    row.forEach((panel, column) => {
      const left = isBeside ? column * (each + BETWEEN) : 0;
      const margin = row.length === 1 ? common : marginOf(panel, each);
      frames.push(frameOf(panel, left, height, each, margin));
      if (!isBeside || column === row.length - 1) height += panel.height;
    });
  }
  return { frames, height };
}

/** The room for the names of its rows; panels below each other have that of the widest. @param {Panel} panel @param {number} width */
function marginOf({ y: { names } }, width) {
  const widest = Math.max(...names.map((name) => textWidth(name, LETTERS)), 20);
  return Math.ceil(Math.min(widest, 0.4 * width)) + 8;
}

/** @param {Panel} panel @param {number} start @param {number} above @param {number} width @param {number} margin @returns {Frame} */
function frameOf(panel, start, above, width, margin) {
  const { x: across, y: up } = panel;
  const letters = Math.floor(margin / (0.58 * LETTERS));
  const left = start + margin;
  const right = Math.max(left + 40, start + width - 12);
  const top = above + (up.label ? 24 : 8);
  const bottom = above + panel.height - (across.label ? 36 : across.names.length ? 22 : 8);
  const x = scaleOf(across, left, right);
  const isBand = up.kind === "band";
  const y = isBand ? scaleOf(up, top, bottom) : scaleOf(up, bottom, top);
  const named = ticksOf(up).map(({ value, name }) => ({
    value,
    name: isBand && textWidth(name, LETTERS) > margin ? withoutMiddle(name, letters) : name,
  }));
  const room = (/** @type {Tick} */ { name }) => textWidth(name, LETTERS) + 8;
  const xTicks = thinned(ticksOf(across), x, room);
  return { panel, left, right, top, bottom, x, y, xTicks, yTicks: thinned(named, y, () => 13) };
}

/** @param {Axis} axis @param {number} start @param {number} end */
function scaleOf({ kind, low, high }, start, end) {
  return (kind === "log" ? logScale : linearScale)(low, high, start, end);
}

/** @param {Axis} axis @returns {Tick[]} */
function ticksOf({ ticks, names }) {
  return names.map((name, index) => ({ value: ticks[index], name }));
}

/** Every second tick, or every third …, until none stands in another. @param {Tick[]} ticks @param {import("./scale.js").Scale} scale @param {(tick: Tick) => number} room */
function thinned(ticks, scale, room) {
  for (let every = 1; every < ticks.length; every++) {
    const kept = ticks.filter((_, index) => index % every === 0);
    const isFree = kept.every(
      (tick, index) =>
        index === 0 ||
        Math.abs(scale(tick.value) - scale(kept[index - 1].value)) >=
          (room(tick) + room(kept[index - 1])) / 2,
    );
    if (isFree) return kept;
  }
  return ticks.slice(0, 1);
}

/** The class of a row's colour. @param {Mark} mark @param {number} row */
export function toneOf(mark, row) {
  return `pf-tone-${toneName(mark, row).replaceAll(" ", "-")}`;
}

/** @param {Mark} mark @param {number} row */
export function toneName({ tone }, row) {
  return typeof tone === "string" ? tone : tone[row];
}

/** The size of a row of Dots; 0 of other marks. @param {Mark} mark @param {number} row @returns {number} */
export function sizeOf({ size = 0 }, row) {
  return typeof size === "number" ? size : size[row];
}

/** The box of a row of Boxes. @param {Mark} mark @param {number} row @param {Frame} frame */
export function boxOf(mark, row, frame) {
  const [left, right] = [frame.x(mark.x[row]), frame.x(mark.x2[row])];
  const [upper, lower] = [frame.y(mark.y2[row]), frame.y(mark.y[row])];
  const [x, y] = [Math.min(left, right), Math.min(upper, lower)];
  return { x, y, width: Math.abs(right - left), height: Math.abs(lower - upper) };
}

/** The rows that have a tooltip and a place, in the order of the keys. @param {Frame[]} frames @returns {Spot[]} */
export function spotsOf(frames) {
  return frames.flatMap((frame) =>
    frame.panel.marks
      .filter((mark) => mark.tips)
      .flatMap((mark) => Array.from(mark.x, (_, row) => spotOf(mark, row, frame)))
      .filter(({ mark, row }) => hasPlace(mark, row, frame)),
  );
}

/** Whether a row, if it is a dot, is finite, and above 0 on a logarithmic axis. @param {Mark} mark @param {number} row @param {Frame} frame */
export function hasPlace({ mark, x, y }, row, { panel }) {
  const isOn = (/** @type {Axis} */ { kind }, /** @type {number} */ value) =>
    Number.isFinite(value) && (kind !== "log" || value > 0);
  return mark !== "Dots" || (isOn(panel.x, x[row]) && isOn(panel.y, y[row]));
}

/** @param {Mark} mark @param {number} row @param {Frame} frame @returns {Spot} */
function spotOf(mark, row, frame) {
  const half = sizeOf(mark, row) / 2;
  const [x, y] = [frame.x(mark.x[row]) - half, frame.y(mark.y[row]) - half];
  const box =
    mark.mark === "Boxes" ? boxOf(mark, row, frame) : { x, y, width: 2 * half, height: 2 * half };
  return { mark, row, key: mark.key[row] ?? "", ...box };
}

/** The spot that a pointer means: in it, or else close by. @param {Spot[]} spots @param {number} x @param {number} y */
export function spotAt(spots, x, y) {
  const isIn = (/** @type {Spot} */ spot, /** @type {number} */ reach) =>
    x >= spot.x - reach &&
    x <= spot.x + spot.width + reach &&
    y >= spot.y - reach &&
    y <= spot.y + spot.height + reach;
  const over = (/** @type {number} */ reach) => spots.findLast((spot) => isIn(spot, reach));
  return over(0) ?? over(REACH) ?? null;
}

/** The row of a cursor that is nearest to a place; null outside every panel. @param {Cursor} cursor @param {Frame[]} frames @param {number} x @param {number} y */
export function rowAt(cursor, frames, x, y) {
  const frame = frames.find(
    ({ left, right, top, bottom }) =>
      x >= left - 20 && x <= right + 12 && y >= top - 24 && y <= bottom + 22,
  );
  if (!frame || !cursor.at.length) return null;
  const off = (/** @type {number} */ row) => Math.abs(frame.x(cursor.at[row]) - x);
  return Array.from(cursor.at.length ? cursor.at : []).reduce(
    (best, _, row) => (off(row) < off(best) ? row : best),
    0,
  );
}

/** Where a cursor stands on each panel's lines. @param {Frame} frame @param {number} at @returns {{ x: number, y: number }[]} */
export function pointsAt(frame, at) {
  return frame.panel.marks
    .filter(({ mark, style }) => mark === "Line" && style === "solid")
    .map((line) => line.y[Array.from(/** @type {Column} */ (line.x)).indexOf(at)])
    .filter((value) => Number.isFinite(value))
    .map((value) => ({ x: frame.x(at), y: clamped(frame.y(value), frame.top, frame.bottom) }));
}

/** The cells of a heat map by their shade, each as a path. @param {Mark} mark @param {Frame} frame @returns {Map<number, string>} */
export function cellsOf({ x, y, shades }, frame) {
  const paths = new Map();
  const rows = y.length - 1;
  for (let cell = 0; cell < rows * (x.length - 1); cell++) {
    const shade = shades.getUint8(cell);
    if (!shade) continue;
    const [column, row] = [Math.floor(cell / rows), cell % rows];
    const [left, right] = [frame.x(x[column]), frame.x(x[column + 1])];
    const [bottom, top] = [frame.y(y[row]), frame.y(y[row + 1])];
    const width = Math.max(1, right - left).toFixed(1);
    const box = `M${left.toFixed(1)} ${top.toFixed(1)}h${width}V${bottom.toFixed(1)}h-${width}Z`;
    paths.set(shade, (paths.get(shade) ?? "") + box);
  }
  return paths;
}

/** A row's tooltip: heading, line, and figures with their names. @param {Tips} tips @param {number} row @returns {[string, string, [string, string][]]} */
export function wordsOf({ heading, line, figures }, row) {
  const shown = figuresAt(figures, row);
  const title = Array.isArray(heading)
    ? heading[row]
    : `${heading.name} ${text(heading.values[row], heading.readable)}`;
  return [title, line[row] ?? "", shown];
}

/** The known figures of a row with their names. @param {Values[]} figures @param {number} row @returns {[string, string][]} */
export function figuresAt(figures, row) {
  /** @type {[string, string][]} */
  const all = figures.map(({ name, values, readable }) => [text(values[row], readable), name]);
  return all.filter(([value]) => value);
}

/** The stop of a handle that is nearest to a height. @param {Column} at @param {import("./scale.js").Scale} scale @param {number} y */
export function nearestStop(at, scale, y) {
  const off = (/** @type {number} */ row) => Math.abs(scale(at[row]) - y);
  let best = 0;
  for (let row = 1; row < at.length; row++) if (off(row) <= off(best)) best = row;
  return best;
}

/**
 * The stop after a key; up is the one above, a page is a tenth of them. Null for other keys.
 * @param {string} key @param {number} row @param {number} count @returns {number | null}
 */
export function stopAfterKey(key, row, count) {
  const page = Math.max(1, Math.round(count / 10));
  /** @type {Record<string, number>} */
  const steps = {
    ArrowUp: -1,
    ArrowRight: -1,
    ArrowDown: 1,
    ArrowLeft: 1,
    PageUp: -page,
    PageDown: page,
    Home: count,
    End: -count,
  };
  return key in steps ? clamped(row + steps[key], 0, count - 1) : null;
}

/** @param {number | string} value @param {string} readable */
function text(value, readable) {
  if (typeof value === "string") return value;
  return Number.isNaN(value) ? "" : (FORMATS[readable] ?? readableCount)(value);
}

/** The path of a line, broken where a value is not known, inside its panel. @param {Mark} line @param {Frame} frame */
export function pathOf(line, frame) {
  let path = "";
  let isDown = false;
  let before = 0;
  Array.from(/** @type {Column} */ (line.x)).forEach((at, row) => {
    const [x, y] = [frame.x(at), frame.y(line.y[row])];
    if (!Number.isFinite(line.y[row]) || !Number.isFinite(y)) {
      isDown = false;
      return;
    }
    const inside = clamped(y, frame.top, frame.bottom).toFixed(1);
    if (line.is_stepped && isDown) path += `L${x.toFixed(1)} ${before}`;
    path += `${isDown ? "L" : "M"}${x.toFixed(1)} ${inside}`;
    [isDown, before] = [true, Number(inside)];
  });
  return path;
}
