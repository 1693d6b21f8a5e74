/** What a memory limit means while it is dragged. No DOM. */

import { readableBytes } from "../shared/format.js";

/** @typedef {{ peak_bytes: number, remedies: [string, number][] }} Peaks each change's peak */

/**
 * Whether a limit holds, and what would have to change.
 * @param {Peaks | null} peaks @param {number} limit
 */
export function limitSentence(peaks, limit) {
  if (!peaks) return "";
  const over = peaks.peak_bytes - limit;
  if (over <= 0) return `It fits as it is, with ${readableBytes(-over)} to spare.`;
  const helping = peaks.remedies.filter(([, bytes]) => bytes <= limit).map(([name]) => name);
  const needed = `It needs ${readableBytes(over)} more`;
  if (helping.length) return `${needed}. Enough would be ${helping.join(", or ")}.`;
  return `${needed}, and none of the changes below is enough: take a smaller batch.`;
}
