/** A memory snapshot: its columns, and the segments of a moment as rows of blocks. No DOM. */

import { eventAt } from "../memory/layout.js";
import { readableBytes, readablePercent, threeFigures } from "../shared/format.js";
import { float64s, int32s } from "../shared/unpack.js";

/**
 * @typedef {{ segment: number, offset: number, bytes: number, site: string, category: string }} Block
 * @typedef {{ moment: string, sentence: string, size: Float64Array, allocated: Float64Array,
 *   stream: Int32Array, kind: string[], blocks: Block[] }} SegmentMap
 * @typedef {{ title: string, sentence: string, unit: string, categories: string[],
 *   time: number[], held: Float64Array[], reserved: Float64Array, whole: number[],
 *   peakTime: number, peakBytes: number, refusedTime: number | null, refusedBytes: number | null,
 *   maps: SegmentMap[], tables: { caption: string, rows: Record<string, string>[] }[] }} Snapshot
 * @typedef {{ segment: number, y: number, width: number, label: string }} SegmentRow
 * @typedef {{ block: Block, x: number, y: number, width: number, height: number }} BlockBox
 */

export const ROW = 12;
const ROW_GAP = 3;
const MOST_SEGMENTS = 40; // rows; more would be thinner than a line of text
const MOST_BLOCKS = 2000; // the largest; smaller ones are thinner than a pixel

/** Unpack the trait `data`; null if there is nothing to draw. @param {any} data @returns {Snapshot | null} */
export function unpackedSnapshot(data) {
  if (!Array.isArray(data?.categories)) return null;
  const time = [...float64s(data.time)];
  const held = /** @type {Float64Array[]} */ (data.held_bytes.map(float64s));
  return {
    title: data.title,
    sentence: data.sentence,
    unit: data.unit,
    categories: data.categories,
    time,
    held,
    reserved: float64s(data.reserved_bytes),
    whole: time.map((_, at) => held.reduce((sum, column) => sum + column[at], 0)),
    peakTime: data.peak_time,
    peakBytes: data.peak_bytes,
    refusedTime: data.refused_time,
    refusedBytes: data.refused_bytes,
    maps: data.maps.map(unpackedMap),
    tables: [
      { caption: "layers that hold most at the peak", rows: data.layers ?? [] },
      { caption: "call sites that hold most at the peak", rows: data.sites },
      { caption: data.out_of_memory, rows: data.remedies },
      { caption: data.replay, rows: data.settings },
    ].filter((table) => table.rows.length),
  };
}

/** @param {any} sent @returns {SegmentMap} */
function unpackedMap(sent) {
  const [segment, site] = [int32s(sent.block_segment), int32s(sent.block_site)];
  const [offset, bytes] = [float64s(sent.block_offset), float64s(sent.block_bytes)];
  const category = int32s(sent.block_category);
  return {
    moment: sent.moment,
    sentence: sent.sentence,
    size: float64s(sent.segment_bytes),
    allocated: float64s(sent.segment_allocated),
    stream: int32s(sent.segment_stream),
    kind: sent.segment_kind,
    blocks: Array.from(segment, (row, index) => ({
      segment: row,
      offset: offset[index],
      bytes: bytes[index],
      site: sent.sites[site[index]],
      category: sent.categories[category[index]],
    })),
  };
}

/** The bytes of each category at each moment that is drawn. @param {Snapshot} snapshot @param {number[]} at */
export function stacksAt(snapshot, at) {
  return at.map((index) => snapshot.held.map((column) => column[index]));
}

/**
 * The moments to draw: at most one a pixel, that with the most.
 * @param {Snapshot} snapshot @param {number} pixels @returns {number[]}
 */
export function drawnMoments({ time, whole }, pixels) {
  const end = time.at(-1) || 1;
  /** @type {Map<number, number>} */
  const kept = new Map();
  time.forEach((moment, index) => {
    const pixel = Math.floor((moment / end) * pixels);
    const other = kept.get(pixel);
    if (other === undefined || whole[index] > whole[other]) kept.set(pixel, index);
  });
  return [...kept.values()];
}

/** The moment of the peak, or the nearest before it. @param {Snapshot} snapshot */
export function peakMoment({ time, peakTime }) {
  return Math.max(0, eventAt(time, peakTime));
}

/**
 * A moment: a heading, what is reserved (on a CPU nothing is), and the categories, the largest first.
 * @param {Snapshot} snapshot @param {number} at @returns {[string, string, [string, string][]]}
 */
export function momentWords(snapshot, at) {
  const { categories, held, whole, reserved, time, unit } = snapshot;
  const parts = categories
    .map((name, index) => ({ name, bytes: held[index][at] }))
    .filter((part) => part.bytes > 0)
    .sort((first, second) => second.bytes - first.bytes);
  return [
    `${readableBytes(whole[at])} allocated at ${threeFigures(time[at])} ${unit}`,
    reserved.length ? `${readableBytes(reserved[at])} reserved` : "",
    parts.map((part) => [readableBytes(part.bytes), part.name]),
  ];
}

/**
 * The largest segments as rows, and the blocks in them as boxes.
 * @param {SegmentMap} map @param {number} width
 * @returns {{ rows: SegmentRow[], boxes: BlockBox[], height: number }}
 */
export function segmentRows(map, width) {
  const order = [...map.size.keys()].sort((first, second) => map.size[second] - map.size[first]);
  const shown = order.slice(0, MOST_SEGMENTS);
  const widest = Math.max(1, map.size[shown[0]] ?? 1);
  const rows = shown.map((segment, row) => ({
    segment,
    y: row * (ROW + ROW_GAP),
    width: (width * map.size[segment]) / widest,
    label: segmentWords(map, segment),
  }));
  const rowOf = new Map(rows.map((row) => [row.segment, row]));
  const boxes = map.blocks
    .filter((block) => rowOf.has(block.segment))
    .sort((first, second) => second.bytes - first.bytes)
    .slice(0, MOST_BLOCKS)
    .map((block) => ({
      block,
      x: (width * block.offset) / widest,
      y: rowOf.get(block.segment)?.y ?? 0,
      width: Math.max(0.5, (width * block.bytes) / widest),
      height: ROW,
    }))
    .sort((first, second) => first.y - second.y || first.x - second.x);
  return { rows, boxes, height: Math.max(ROW, rows.length * (ROW + ROW_GAP)) };
}

/** @param {SegmentMap} map @param {number} segment */
function segmentWords({ size, allocated, stream, kind }, segment) {
  const free = size[segment] - allocated[segment];
  return (
    `${kind[segment]} segment of stream ${stream[segment]}: ${readableBytes(size[segment])}, ` +
    `${readableBytes(free)} free`
  );
}

/** A block: its call site, its category, its size. @param {Block} block @param {SegmentMap} map @returns {[string, string, [string, string][]]} */
export function blockWords(block, map) {
  return [
    block.site,
    block.category,
    [
      [readableBytes(block.bytes), "allocated here"],
      [readablePercent(block.bytes / map.size[block.segment]), "of its segment"],
      [readableBytes(block.offset), "from its start"],
    ],
  ];
}
