/** What a view may do beyond its own element: select a layer, and send requests to Python. */

/**
 * @typedef {{ select: (layer: string) => void, selected: () => string, ask: (request: {do: string,
 * [key: string]: any}) => void }} Host
 * @typedef {{ show: (data: any) => void, select?: (layer: string) => void, destroy?: () => void }}
 * View
 * @typedef {(root: HTMLElement, host: Host, model?: any) => View} MakeView
 */

/**
 * The host of a panel. Requests stay in their trait until Python has served them, so that none is
 * lost when several come at once.
 * @param {any} model anywidget's model @returns {Host}
 */
export function hostOf(model) {
  return {
    select(layer) {
      if (model.get("selected") === layer) return;
      model.set("selected", layer);
      model.save_changes();
    },
    selected: () => model.get("selected"),
    ask(request) {
      const open = unserved(model);
      const id = Math.max(model.get("served"), ...open.map((request) => request.id)) + 1;
      model.set("requests", [...open, { ...request, id }]);
      model.save_changes();
    },
  };
}

/** The pending requests. @param {any} model @returns {{id: number, do: string}[]} */
export function unserved(model) {
  const served = model.get("served");
  return model.get("requests").filter((/** @type {{id: number}} */ request) => request.id > served);
}
