/** The scatter of everything tried as SVG: latency across, accuracy or closeness up. */

import { s } from "../shared/dom.js";
import { scatterLayout, toneOf } from "./rows.js";

const HEIGHT = 250;

/**
 * @param {number} width @param {import("./rows.js").ResultsData} data
 * @param {(number: number) => void} point called with a row's number on a click
 * @returns {SVGElement}
 */
export function resultsScatter(width, data, point) {
  const { edges, dots, ticksX, ticksY, line, x } = scatterLayout(width, HEIGHT, data);
  const { left, right, top, bottom } = edges;
  const grid = [
    ...ticksX.flatMap(({ at, text }) => [
      s("line", { x1: at, x2: at, y1: top, y2: bottom, class: "pf-gridline" }),
      s("text", { x: at, y: bottom + 15, class: "pf-tick pf-middle" }, text),
    ]),
    ...ticksY.flatMap(({ at, text }) => [
      s("line", { x1: left, x2: right, y1: at, y2: at, class: "pf-gridline" }),
      s("text", { x: left - 6, y: at + 4, class: "pf-tick pf-end" }, text),
    ]),
    s(
      "text",
      { x: right, y: bottom + 31, class: "pf-tick pf-end" },
      "latency, ms, on a ratio scale",
    ),
    s("text", { x: 2, y: 11, class: "pf-tick" }, data.metric || "closeness (1 − output error)"),
  ];
  const ranges = dots.map(
    ({ row, y }) =>
      row.likely &&
      s("line", {
        x1: x(row.likely[0]),
        x2: x(row.likely[1]),
        y1: y,
        y2: y,
        class: "pf-result-doubt",
      }),
  );
  const marks = dots.map(({ x: across, y, row, label }) =>
    s(
      "g",
      { class: "pf-is-pointing", onclick: () => point(row.number) },
      s("title", {}, `${row.number}. ${row.label}: ${row.sentence}`),
      s("circle", {
        cx: across,
        cy: y,
        r: row.number === data.current ? 6.5 : 5,
        class: `pf-result-dot pf-tone-${toneOf(row)}${row.number === data.current ? " pf-here" : ""}`,
      }),
      s("text", { x: label.x, y: label.y + 4, class: "pf-dot-name pf-middle" }, row.number),
    ),
  );
  return s(
    "svg",
    {
      class: "pf-svg",
      width,
      height: HEIGHT,
      viewBox: `0 0 ${width} ${HEIGHT}`,
      role: "img",
      "aria-label": `latency and ${data.metric || "closeness of the output"} of everything tried`,
    },
    ...grid,
    s("path", { d: line, class: "pf-result-line" }),
    ...ranges,
    ...marks,
  );
}
