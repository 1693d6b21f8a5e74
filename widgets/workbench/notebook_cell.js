/** A new cell in the notebook, below the one that shows an element. JupyterLab and Notebook 7. */

/**
 * Whether the cell was inserted: elsewhere, as in a page of its own, there is no notebook.
 * @param {Element} element @param {any} model anywidget's, whose manager knows the notebook
 * @param {string} source
 */
export function insertBelow(element, model, source) {
  const cell = /** @type {HTMLElement | null} */ (element.closest(".jp-Cell"));
  const notebook = model.widget_manager?.context?.model?.sharedModel;
  const place = Number(cell?.dataset.windowedListIndex);
  if (!cell || !notebook?.insertCell || !Number.isInteger(place)) return false;
  notebook.insertCell(place + 1, { cell_type: "code", source });
  return true;
}
