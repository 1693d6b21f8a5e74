/** What a view may do beyond its own element: choose a layer, and ask Python for something. */

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
      const id = Math.max(model.get("served"), ...open.map((one) => one.id)) + 1;
      model.set("requests", [...open, { ...request, id }]);
      model.save_changes();
    },
  };
}

/**
 * What was asked for and is not yet served.
 * @param {any} model @returns {{id: number, do: string}[]}
 */
export function unserved(model) {
  const served = model.get("served");
  return model.get("requests").filter((/** @type {{id: number}} */ one) => one.id > served);
}
