/**
 * The threshold of one layer: sent to Python at most ten times a second during a gesture, and at
 * its end.
 */

import { ForecastTable } from "./forecast_table.js";
import { keptChannels, removedRatio, thresholdOf } from "./choice.js";
import { unpackedImportance } from "./table.js";
import { throttle } from "../shared/throttle.js";
import { ThresholdChart } from "./threshold_chart.js";

/** @typedef {import("./table.js").ImportanceTable} ImportanceTable */

const LIVE_EVERY_MS = 100;

export class ChannelChoice {
  /**
   * @param {import("../shared/host.js").Host} host @param {any} model
   * @param {(row: number, kept: number) => void} onKept on the way, and at its end
   * @param {number} height
   */
  constructor(host, model, onKept, height) {
    this.host = host;
    this.model = model;
    this.onKept = onKept;
    this.table = unpackedImportance({});
    this.layer = "";
    /** @type {number[]} */
    this.kept = [];
    /**
     * Each layer's threshold, which the number of channels does not determine.
     * @type {Map<number, number>}
     */
    this.own = new Map();
    this.live = throttle(LIVE_EVERY_MS, (message) => this.send(message));
    this.chart = new ThresholdChart(
      {
        onLive: (threshold, kept) => this.tell(threshold, kept),
        onSettle: (threshold, kept) => this.settle(threshold, kept),
      },
      height,
    );
    this.forecast = new ForecastTable(model);
    /**
     * The cut that is being dragged, as it would be requested.
     * @type {import("./cut_choice.js").Cut | null}
     */
    this.cut = null;
    this.element = this.chart.element;
  }

  /** @param {ImportanceTable} table */
  take(table) {
    this.table = table;
    this.own.clear();
    this.cut = null;
    this.follow();
  }

  /** @param {string} layer */
  choose(layer) {
    this.layer = layer;
    this.draw();
  }

  /** Redraw after a change of the kept channels. */
  follow() {
    this.kept = keptChannels(this.model, this.table);
    this.showForecast(this.cut);
    this.draw();
  }

  /**
   * Show a threshold over all layers while it is dragged.
   * @param {number} threshold @param {number[]} kept
   */
  tellAll(threshold, kept) {
    this.kept = kept;
    this.takeOver(threshold);
    this.live.tell({ layer: "", threshold, kept: sum(kept) });
    this.showForecast({ layer: "", threshold });
    this.draw();
  }

  /** @param {number} threshold @param {number[]} kept */
  settleAll(threshold, kept) {
    this.takeOver(threshold);
    this.end({ do: this.isInBench ? "prune" : "keep", layer: "", threshold, kept: sum(kept) });
  }

  destroy() {
    this.live.drop();
    this.chart.destroy();
  }

  get isInBench() {
    return Boolean(this.model.get("state"));
  }

  get row() {
    return this.table.place.get(this.layer) ?? -1;
  }

  // Private to the choice.

  draw() {
    const { row } = this;
    const threshold =
      row < 0
        ? 0
        : thresholdOf(
            this.table,
            row,
            this.kept[row] ?? this.table.channels[row],
            this.own.get(row),
          );
    this.chart.show(this.table, row, threshold);
  }

  /** @param {number} threshold */
  takeOver(threshold) {
    this.table.layers.forEach((_, row) => this.own.set(row, threshold));
  }

  /** @param {number} threshold @param {number} kept */
  tell(threshold, kept) {
    this.live.tell({ layer: this.layer, threshold, kept });
    this.showForecast({ layer: this.layer, ratio: removedRatio(this.table, this.row, kept) });
    this.kept = this.kept.with(this.row, kept);
    this.onKept(this.row, kept);
  }

  /** @param {number} threshold @param {number} kept */
  settle(threshold, kept) {
    const { row, layer } = this;
    if (row < 0) return;
    this.own.set(row, threshold);
    this.onKept(row, kept);
    this.end(
      this.isInBench
        ? { do: "prune", layer, ratio: removedRatio(this.table, row, kept), kept }
        : { do: "keep", layer, threshold, kept },
    );
  }

  /**
   * End the gesture; unsent live messages are dropped.
   * @param {{ do: string, [key: string]: any }} request
   */
  end(request) {
    this.live.drop();
    this.model.set("live", {});
    this.host.ask(request);
    this.showForecast(null);
  }

  /** @param {import("./cut_choice.js").Cut | null} cut the cut that is being dragged */
  showForecast(cut) {
    this.cut = cut;
    this.forecast.take();
    this.forecast.show(this.table, cut);
    this.chart.tell(this.forecast.line);
  }

  /** @param {{ layer: string, threshold: number, kept: number }} message */
  send(message) {
    this.model.set("live", message);
    this.model.save_changes();
  }
}

/** @param {number[]} counts */
function sum(counts) {
  return counts.reduce((all, count) => all + count, 0);
}
