/**
 * The geometry of a layer's channel bars. The square-root scale gives room to the small ones, where
 * the threshold is chosen. No DOM.
 */

import { clamped } from "../shared/scale.js";

/**
 * @typedef {{ left: number, right: number, top: number, bottom: number, most: number, count: number
 * }} ChannelFrame
 *   `most`: the value at the top
 */

const CHANNEL_MARGIN = { left: 34, right: 12, top: 8, bottom: 20 };

/**
 * @param {number} width @param {number} height @param {{ value: Float32Array, error: Float32Array
 * }} sorted @returns {ChannelFrame}
 */
export function channelFrame(width, height, { value, error }) {
  const reach = value.length ? value[0] + (Number.isNaN(error[0]) ? 0 : error[0]) : 1;
  const right = Math.max(CHANNEL_MARGIN.left + 20, width - CHANNEL_MARGIN.right);
  return {
    left: CHANNEL_MARGIN.left,
    right,
    top: CHANNEL_MARGIN.top,
    bottom: height - CHANNEL_MARGIN.bottom,
    most: (reach || 1) * 1.06,
    count: value.length,
  };
}

/** The height of a value. @param {ChannelFrame} frame @param {number} value */
export function heightAt(frame, value) {
  return (
    frame.bottom -
    (frame.bottom - frame.top) * Math.sqrt(clamped(value, 0, frame.most) / frame.most)
  );
}

/** The value at a height; the other way round. @param {ChannelFrame} frame @param {number} y */
export function valueAt(frame, y) {
  const share = (frame.bottom - clamped(y, frame.top, frame.bottom)) / (frame.bottom - frame.top);
  return frame.most * share * share;
}

/**
 * The left edge of a channel's bar.
 * @param {ChannelFrame} frame @param {number} place among the sorted
 */
export function leftOf(frame, place) {
  return frame.left + ((frame.right - frame.left) * place) / Math.max(1, frame.count);
}

/**
 * All bars as one path, at most one per pixel.
 * @param {ChannelFrame} frame @param {Float32Array} values
 */
export function barsPath(frame, values) {
  const width = (frame.right - frame.left) / Math.max(1, frame.count);
  const gap = width >= 4 ? 1 : width >= 2.5 ? 0.5 : 0;
  return placesOf(frame)
    .map(({ place, end }) => {
      const [left, right] = [r(leftOf(frame, place)), r(leftOf(frame, end) - gap)];
      const [top, bottom] = [r(heightAt(frame, values[place])), r(frame.bottom)];
      return `M${left} ${bottom}V${top}H${right}V${bottom}Z`;
    })
    .join("");
}

/**
 * The standard errors of wide bars, a line each; "" if bars are narrow or errors unknown.
 * @param {ChannelFrame} frame @param {{ value: Float32Array, error: Float32Array }} sorted
 */
export function whiskerPath(frame, { value, error }) {
  if (!hasWhiskers(frame) || !value.length || Number.isNaN(error[0])) return "";
  const marks = Array.from(value, (mean, place) => {
    const x = (leftOf(frame, place) + leftOf(frame, place + 1)) / 2;
    const low = heightAt(frame, mean - error[place]);
    const high = heightAt(frame, mean + error[place]);
    return `M${r(x)} ${r(low)}V${r(high)}`;
  });
  return marks.join("");
}

/**
 * The standard errors of narrow bars as a band; "" if there are whiskers or errors are unknown.
 * @param {ChannelFrame} frame @param {{ value: Float32Array, error: Float32Array }} sorted
 */
export function bandPath(frame, { value, error }) {
  if (hasWhiskers(frame) || !value.length || Number.isNaN(error[0])) return "";
  const places = placesOf(frame);
  const side = (/** @type {number} */ sign) =>
    places.map(({ place, end }) => {
      const y = r(heightAt(frame, value[place] + sign * error[place]));
      return `${r(leftOf(frame, place))} ${y}L${r(leftOf(frame, end))} ${y}`;
    });
  const under = side(-1)
    .map((edge) => edge.split("L").reverse().join("L"))
    .reverse();
  return `M${[...side(1), ...under].join("L")}Z`;
}

/**
 * Round values up the axis: 1 is the layer's mean.
 * @param {ChannelFrame} frame @returns {number[]}
 */
export function channelTicks(frame) {
  const steps = [0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096].filter(
    (value) => value <= frame.most,
  );
  /** @type {number[]} */
  const kept = [];
  for (const value of [1, ...steps.filter((step) => step !== 1).reverse()]) {
    const y = heightAt(frame, value);
    if (
      value <= frame.most &&
      frame.bottom - y > 9 &&
      kept.every((other) => Math.abs(heightAt(frame, other) - y) > 15)
    )
      kept.push(value);
  }
  return kept.sort((first, second) => first - second);
}

/** 32, 64 → "32 of 64 channels kept". @param {number} kept @param {number} all */
export function keptText(kept, all) {
  return `${kept.toLocaleString("en-US")} of ${all.toLocaleString("en-US")} channels kept`;
}

/** A threshold as short as it can be written. @param {number} value */
export function thresholdText(value) {
  return value >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(2)));
}

/** @param {ChannelFrame} frame */
function hasWhiskers(frame) {
  return (frame.right - frame.left) / Math.max(1, frame.count) >= 5;
}

/**
 * The bars to draw: at most the first of each pixel.
 * @param {ChannelFrame} frame @returns {{ place: number, end: number }[]}
 */
function placesOf(frame) {
  const bars = Math.min(frame.count, Math.max(1, Math.floor(frame.right - frame.left)));
  const at = (/** @type {number} */ bar) => Math.floor((bar * frame.count) / bars);
  return Array.from({ length: bars }, (_, bar) => ({ place: at(bar), end: at(bar + 1) }));
}

/** @param {number} value */
function r(value) {
  return Number(value.toFixed(1));
}
