/** The view of an accelerated training loop: its switches, each with its speed-up and its reason. */

import { fresh, h, s } from "../shared/dom.js";
import { SpokenLine } from "../shared/spoken_line.js";
import { BAR_HEIGHT, BAR_WIDTH, furthest, MARKS, placeOf, spokenLine } from "./layout.js";

/** @typedef {import("./layout.js").Acceleration} Acceleration */
/** @typedef {import("./layout.js").Switch} Switch */

const MIDDLE = BAR_HEIGHT / 2;

/** @param {HTMLElement} root @returns {import("../shared/host.js").View} */
export function acceleration(root) {
  const head = h("div", { class: "pf-view-head" });
  const live = new SpokenLine();
  const lines = h("div", { class: "pf-acceleration-lines" });
  const table = h("div", { class: "pf-acceleration-rows" });
  const label = "acceleration of a training loop";
  root.append(
    h(
      "section",
      { class: "pf-view pf-acceleration", "aria-label": label },
      head,
      live.element,
      lines,
      table,
    ),
  );
  let states = "";

  /** The state in a sentence, told at once where a switch has changed. @param {Acceleration} known */
  function speak(known) {
    const seen = JSON.stringify([known.is_enabled, known.rows.map(({ state }) => state)]);
    live.tell(spokenLine(known), seen !== states);
    states = seen;
  }

  return {
    /** @param {Acceleration} known */
    show(known) {
      fresh(head, h("h2", {}, known.title));
      speak(known);
      fresh(lines, ...known.captions.map((line) => h("p", {}, line)));
      fresh(table, known.rows.length ? switchTable(known.rows) : null);
    },
  };
}

/** @param {Switch[]} rows */
function switchTable(rows) {
  const names = Object.keys(rows[0].cells);
  const most = furthest(rows);
  const kind = (/** @type {string} */ name) =>
    ["switch", "state", "why"].includes(name) ? "pf-names" : name === "×" ? "pf-chart" : false;
  const head = names.map((name) =>
    h("th", { scope: "col", class: kind(name) }, name === "×" ? "× faster, 95 % interval" : name),
  );
  const body = rows.map((row) =>
    h("tr", { class: toneOf(row) }, ...names.map((name) => cell(row, name, kind(name), most))),
  );
  return h(
    "table",
    { class: "pf-table", "aria-label": "switches" },
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...body),
  );
}

/** @param {Switch} row @param {string} name @param {string | false} kind @param {number} most */
function cell(row, name, kind, most) {
  const text = row.cells[name];
  if (name === "switch") return h("th", { scope: "row", class: kind }, text);
  if (name === "state")
    return h("td", { class: "pf-names pf-acceleration-state" }, mark(row), text);
  if (name === "×") return h("td", { class: kind }, bar(row, most), h("span", {}, text));
  return h("td", { class: kind }, text);
}

/** @param {Switch} row */
function mark({ state }) {
  const size = { width: 12, height: 12, viewBox: "-6 -6 12 12", "aria-hidden": "true" };
  return s("svg", size, s("path", { d: MARKS[state], class: state === "waiting" && "pf-hollow" }));
}

/** From 1 × to the ratio, with a line over its interval. @param {Switch} row @param {number} most */
function bar({ ratio, interval }, most) {
  const viewBox = `0 0 ${BAR_WIDTH} ${BAR_HEIGHT}`;
  const size = { width: BAR_WIDTH, height: BAR_HEIGHT, viewBox, "aria-hidden": "true" };
  const one = placeOf(1, most);
  const drawn = s("svg", size, s("path", { d: `M ${one} 0 V ${BAR_HEIGHT}`, class: "pf-equal" }));
  if (ratio === null || interval === null) return drawn;
  const end = placeOf(ratio, most);
  const [low, high] = interval.map((value) => placeOf(value, most));
  const place = { x: Math.min(one, end), y: 4, width: Math.abs(end - one), height: BAR_HEIGHT - 8 };
  drawn.append(
    s("rect", { ...place, class: "pf-acceleration-bar" }),
    s("path", { d: `M ${low} ${MIDDLE} H ${high}`, class: "pf-acceleration-interval" }),
    s("path", { d: `M ${end} 2 V ${BAR_HEIGHT - 2}`, class: "pf-acceleration-interval" }),
  );
  return drawn;
}

/** @param {Switch} row */
function toneOf({ state }) {
  if (state === "on") return "pf-acceleration-on";
  return state === "taken back"
    ? "pf-acceleration-back"
    : state === "judging" && "pf-acceleration-now";
}
