/** A machine's record as facts and groups of ceilings. No DOM. */

import { readableBytes } from "../shared/format.js";
import { roundedText } from "../shared/scale.js";

/**
 * @typedef {import("../roofline/layout.js").Ceiling} Ceiling
 * @typedef {{ name: string, kind: string, memory_bytes: number, compute_capability?: [number,
 * number] | null,
 *   multiprocessors?: number | null, ceiling: Ceiling }} Accelerator
 * @typedef {{ name: string, source: string, isa?: string[], physical_cores: number, logical_cores:
 * number,
 *   caches_bytes?: Record<string, number>, memory_bytes: number, ceilings: Ceiling[],
 *   accelerators?: Accelerator[],
 *   torch_version?: string, note?: string }} HardwareData
 * @typedef {{ name: string, memory_bytes?: number, detail?: string, formats: string[], ceilings: {
 * label: string,
 *   ceiling: Ceiling }[], mostGflops: number, mostGbs: number, isLarge: boolean }} CeilingGroup
 */

const FORMATS = ["fp32", "bf16", "fp16", "int8"];

/**
 * Each format's rate; null if not supported or not measured.
 * @param {Ceiling} ceiling @returns {Record<string, number | null>}
 */
export function formatRates(ceiling) {
  return {
    fp32: ceiling.fp32_gflops,
    bf16: ceiling.bf16_gflops ?? null,
    fp16: ceiling.fp16_gflops ?? null,
    int8: ceiling.int8_gops ?? null,
  };
}

/** The card's facts, by name. @param {HardwareData} data @returns {[string, string][]} */
export function machineFacts(data) {
  /** @type {[string, string][]} */
  const caches = Object.entries(data.caches_bytes ?? {}).map(([level, bytes]) => [
    `${level} cache`,
    binaryBytes(bytes),
  ]);
  const logical =
    data.logical_cores === data.physical_cores ? "" : ` · ${data.logical_cores} logical`;
  /** @type {[string, string][]} */
  const torch = data.torch_version ? [["torch", data.torch_version]] : [];
  return [
    ["cores", `${data.physical_cores}${logical}`],
    ["memory", readableBytes(data.memory_bytes)],
    ...caches,
    ...torch,
  ];
}

/** Caches are made in powers of two: 32768 → "32 KiB". @param {number} bytes */
export function binaryBytes(bytes) {
  const [size, unit] = bytes >= 2 ** 20 ? [2 ** 20, "MiB"] : [2 ** 10, "KiB"];
  return `${Number((bytes / size).toPrecision(3))} ${unit}`;
}

/** 58.9 → "58.9 GB/s", 4100 → "4.1 TB/s". @param {number} gbs */
export function bandwidthText(gbs) {
  return gbs >= 1000 ? `${roundedText(gbs / 1000)} TB/s` : `${roundedText(gbs)} GB/s`;
}

/**
 * The CPU by its numbers of threads, then each accelerator; each group's bars have a scale of their
 * own.
 * @param {HardwareData} data @returns {CeilingGroup[]}
 */
export function ceilingGroups(data) {
  const threads = [...(data.ceilings ?? [])].sort(
    (first, second) => (first.threads ?? 0) - (second.threads ?? 0),
  );
  const cpu = threads.map((ceiling) => ({
    label: `${ceiling.threads} thread${ceiling.threads === 1 ? "" : "s"}`,
    ceiling,
  }));
  const others = (data.accelerators ?? []).map((device) => ({
    ...groupOf(device.name, [{ label: device.kind, ceiling: device.ceiling }]),
    memory_bytes: device.memory_bytes,
    detail: acceleratorDetail(device),
  }));
  return [...(cpu.length ? [groupOf("CPU", cpu)] : []), ...others];
}

/**
 * @param {string} name @param {{ label: string, ceiling: Ceiling }[]} ceilings @returns
 * {CeilingGroup}
 */
function groupOf(name, ceilings) {
  const formats = FORMATS.filter((format) =>
    ceilings.some(({ ceiling }) => formatRates(ceiling)[format] !== null),
  );
  const rates = ceilings.flatMap(({ ceiling }) =>
    Object.values(formatRates(ceiling)).map((rate) => rate ?? 0),
  );
  const widths = ceilings.map(({ ceiling }) => ceiling.bandwidth_gbs);
  const mostGflops = Math.max(...rates);
  return {
    name,
    formats,
    ceilings,
    mostGflops,
    mostGbs: Math.max(...widths),
    isLarge: mostGflops >= 1e4,
  };
}

/** @param {Accelerator} device */
function acceleratorDetail(device) {
  const parts = [
    device.compute_capability && `capability ${device.compute_capability.join(".")}`,
    device.multiprocessors && `${device.multiprocessors} multiprocessors`,
  ];
  return parts.filter(Boolean).join(" · ");
}
