/** The view of memory that is kept or used again: a switch a step, and what a pool spares a call. */

import { fresh, h, set } from "../shared/dom.js";
import { unserved } from "../shared/host.js";
import { unpackedPicture } from "../shared/picture.js";
import { PictureSheet } from "../shared/picture_view.js";
import { Question } from "../shared/question.js";
import { STEPS, shownStep, stepLine } from "./layout.js";

const FOLLOWED = ["state", "requests", "served"];
const QUESTION = {
  query: "memory_pool",
  request: "memory_pool",
  question: "How many page faults would a memory pool spare a call?",
  use: "Counts those of a few calls without a pool and within one, and what the pool holds and keeps.",
};

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function memoryPool(root, host, model) {
  const question = new Question(model, host.ask, QUESTION);
  const switches = STEPS.map(([kind, name, about]) => stepSwitch(kind, name, about));
  const steps = h("div", { class: "pf-memory-steps" }, ...switches.map(({ element }) => element));
  const title = h("h2", {}, "Memory that is kept or used again");
  const sheet = new PictureSheet(host);
  const all = [title, steps, sheet.element, question.element];
  const label = "memory that is kept or used again";
  root.append(h("section", { class: "pf-view pf-pool-view", "aria-label": label }, ...all));
  /** @type {import("../shared/picture.js").Picture | null} */
  let data = null;

  /** @param {string} kind @param {string} name @param {string} about */
  function stepSwitch(kind, name, about) {
    const line = h("p", { class: "pf-note", "aria-live": "polite" });
    const button = h(
      "button",
      { type: "button", role: "switch", class: "pf-switch", title: about },
      h("i", {}),
    );
    button.setAttribute("aria-label", name);
    button.addEventListener("click", () => {
      const step = shownStep(kind, model.get("state")?.memory_steps, unserved(model));
      if (step.obstacle && !step.isOn) return;
      host.ask({ do: "memory_step", kind, is_on: !step.isOn });
    });
    const words = h("div", {}, h("b", {}, name), h("p", {}, about), line);
    return { kind, button, line, element: h("div", { class: "pf-memory-step" }, button, words) };
  }

  function follow() {
    const state = model.get("state");
    const steps_ = state?.memory_steps;
    steps.hidden = !steps_;
    question.show(Boolean(data));
    if (state?.memory_steps?.pool?.obstacle) question.element.hidden = true;
    for (const { kind, button, line } of switches) {
      const step = shownStep(kind, steps_, unserved(model));
      const isBusy = Boolean(state?.status && state.status !== "idle");
      const text = stepLine(step, isBusy);
      if (line.textContent !== text) fresh(line, text);
      button.classList.toggle("pf-asked", step.isAsked);
      set(button, {
        "aria-checked": String(step.isOn),
        "aria-disabled": String(Boolean(step.obstacle) && !step.isOn),
      });
    }
  }
  for (const name of FOLLOWED) model.on(`change:${name}`, follow);

  return {
    show(sent) {
      data = unpackedPicture(sent);
      title.hidden = !model.get("state")?.memory_steps && !data;
      sheet.element.hidden = !data;
      if (data) sheet.show(data);
      follow();
    },
    destroy() {
      sheet.destroy();
      for (const name of FOLLOWED) model.off(`change:${name}`, follow);
    },
  };
}
