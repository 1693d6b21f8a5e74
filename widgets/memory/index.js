/**
 * The memory view: live bytes over a call, stacked by layers or by category, under the limit, and a
 * map of what is alive at one moment, by default the peak.
 */

import { fresh, h } from "../shared/dom.js";
import { memoryLimit } from "../shared/memory_limit.js";
import { Question } from "../shared/question.js";
import { unpackedTimeline } from "./layout.js";
import { MapChart } from "./map_chart.js";
import { TimeChart } from "./time_chart.js";

const FOLLOWED = ["state", "requests", "served"];
const QUESTION = {
  query: "memory",
  request: "memory",
  question: "What is in memory during a call, and which layers hold it at the peak?",
  use: "Shows the current model's memory over time, and its peak as a map of layers.",
};

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function memory(root, host, model) {
  const question = new Question(model, host.ask, QUESTION);
  const beside = () => model.get("state")?.inputs_bytes ?? 0;
  const time = new TimeChart(memoryLimit(model), beside, () =>
    map.show(data, time.moment(), time.mode),
  );
  const map = new MapChart((layer) => {
    select(layer);
    host.select(layer);
  });
  const head = h("div", { class: "pf-view-head" });
  const sentence = h("p", { class: "pf-reason" });
  const parts = h("div", { class: "pf-memory-parts" }, time.element, map.element);
  const note = h("p", { class: "pf-note" });
  const all = [head, sentence, parts, note, question.element];
  root.append(h("section", { class: "pf-view pf-memory-view", "aria-label": "memory" }, ...all));
  /** @type {import("./layout.js").Timeline | null} */
  let data = null;

  const onChange = () => question.show(Boolean(data));
  for (const name of FOLLOWED) model.on(`change:${name}`, onChange);

  /** @param {string} layer */
  function select(layer) {
    time.select(layer);
    map.select(layer);
  }
  select(host.selected());

  return {
    show(sent) {
      data = unpackedTimeline(sent);
      for (const part of [head, parts, note]) part.hidden = !data;
      question.show(Boolean(data));
      fresh(head, h("h2", {}, data?.title ?? ""));
      fresh(sentence, data?.sentence ?? "");
      fresh(note, data?.note ?? "");
      time.show(data);
      map.show(data, time.moment(), time.mode);
    },
    select,
    destroy() {
      for (const name of FOLLOWED) model.off(`change:${name}`, onChange);
      time.destroy();
      map.destroy();
    },
  };
}
