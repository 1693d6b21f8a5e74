/** The geometry of the roofline: dots, their sizes, and roofs. No DOM. */

import { clamped } from "../shared/label_space.js";
import { logScale, logTicks } from "../shared/scale.js";

/**
 * @typedef {{ layer: string, kind: string, intensity: number, gflops: number, ms: number, bound:
 * string | null }} Point
 * @typedef {{ threads?: number, fp32_gflops: number, bf16_gflops?: number | null, fp16_gflops?:
 * number | null,
 *   int8_gops?: number | null, bandwidth_gbs: number }} Ceiling
 * @typedef {Point & { x: number, y: number, radius: number }} Dot
 * @typedef {{ name: string, rate: number, unit: string }} Roof
 * @typedef {{ width: number, height: number, left: number, right: number, top: number, bottom:
 * number,
 *   x: import("../shared/scale.js").Scale, y: import("../shared/scale.js").Scale, ticksX: number[],
 *   ticksY: number[], lowest: number,
 *   highest: number, floor: number, isSmall: boolean }} Frame
 */

const MOST_POINTS = 300;
// of the time of all points; smaller ones would stretch the scale and could not be seen
const MIN_SHARE = 0.0005;
const SMALL_WIDTH = 440;

/** The points that matter, the costliest first. @param {Point[]} points @returns {Point[]} */
export function plottedPoints(points) {
  const whole = points.reduce((sum, point) => sum + point.ms, 0);
  const ordered = [...points].sort((first, second) => second.ms - first.ms);
  return ordered
    .slice(0, MOST_POINTS)
    .filter((point) => point.ms >= MIN_SHARE * whole && point.intensity > 0 && point.gflops > 0);
}

/**
 * How many billion operations a second the machine allows at an intensity.
 * @param {Ceiling} ceiling @param {number} intensity
 */
export function roofGflops(ceiling, intensity) {
  return Math.min(ceiling.fp32_gflops, ceiling.bandwidth_gbs * intensity);
}

/** The formats' roofs, the highest first. @param {Ceiling} ceiling @returns {Roof[]} */
export function roofsOf(ceiling) {
  const roofs = [
    { name: "fp32", rate: ceiling.fp32_gflops, unit: "GFLOP/s" },
    { name: "bf16", rate: ceiling.bf16_gflops ?? 0, unit: "GFLOP/s" },
    { name: "fp16", rate: ceiling.fp16_gflops ?? 0, unit: "GFLOP/s" },
    { name: "int8", rate: ceiling.int8_gops ?? 0, unit: "GOP/s" },
  ];
  return roofs.filter((roof) => roof.rate > 0).sort((first, second) => second.rate - first.rate);
}

/**
 * The room of the drawing and its scales; they hold every point and every roof.
 * @param {number} width @param {Point[]} points @param {Ceiling} ceiling @returns {Frame}
 */
export function rooflineFrame(width, points, ceiling) {
  const isSmall = width < SMALL_WIDTH;
  const height = isSmall
    ? clamped(Math.round(width * 0.64), 190, 260)
    : clamped(Math.round(width * 0.48), 280, 480);
  const [left, right, top, bottom] = [isSmall ? 40 : 52, width - 10, 20, height - 34];
  const ridge = ceiling.fp32_gflops / ceiling.bandwidth_gbs;
  const across = [...points.map((point) => point.intensity), ridge];
  const up = [...points.map((point) => point.gflops), ...roofsOf(ceiling).map((roof) => roof.rate)];
  const [lowest, highest] = [
    Math.min(...across) / 2,
    Math.max(Math.max(...across) * 4, ridge * 10),
  ];
  const [floor, ceilingRate] = [
    Math.min(Math.min(...up) / 2, Math.max(...up) / 300),
    Math.max(...up) * 1.9,
  ];
  return {
    width,
    height,
    left,
    right,
    top,
    bottom,
    lowest,
    highest,
    floor,
    isSmall,
    x: logScale(lowest, highest, left, right),
    y: logScale(floor, ceilingRate, bottom, top),
    ticksX: logTicks(lowest, highest, isSmall ? 4 : width / 80),
    ticksY: logTicks(floor, ceilingRate, isSmall ? 4 : height / 45),
  };
}

/**
 * Dots whose surface is their share of the time, the largest first so that small ones lie on top.
 * @param {Point[]} points @param {Frame} frame @returns {Dot[]}
 */
export function rooflineDots(points, frame) {
  const whole = points.reduce((sum, point) => sum + point.ms, 0) || 1;
  const [largest, factor] = frame.isSmall ? [9, 20] : [16, clamped(frame.width / 26, 22, 38)];
  return points.map((point) => ({
    ...point,
    x: frame.x(point.intensity),
    y: frame.y(point.gflops),
    radius: clamped(factor * Math.sqrt(point.ms / whole), frame.isSmall ? 3 : 3.2, largest),
  }));
}
