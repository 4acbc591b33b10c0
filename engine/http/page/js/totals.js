// Totals of the cluster.

import { el, mark, say } from "./dom.js";
import { count, plural, rate } from "./format.js";
import * as past from "./past.js";
import { Spark } from "./spark.js";

export class Totals {
  constructor() {
    this.backlog = figure("Backlog", "backlog of all over the last two minutes");
    this.arriving = figure("Arriving /s");
    this.handled = figure("Handled /s");
    this.failed = figure("Failed /s");
    this.flight = figure("In flight");
    this.projects = figure("Projects");
    this.nodes = figure("Nodes");
    const shown = [this.backlog, this.arriving, this.handled, this.failed, this.flight, this.projects, this.nodes];
    this.node = el("dl", { class: "totals", "aria-label": "All tenants together" }, ...shown.map((each) => each.node));
  }

  show({ totals, nodes, unowned }) {
    say(this.backlog.value, count(totals.backlog));
    say(this.arriving.value, rate(totals.arriving));
    say(this.handled.value, rate(totals.handled));
    say(this.failed.value, rate(totals.failed));
    mark(this.failed.node, "data-tone", totals.failed ? "fault" : null);
    say(this.flight.value, count(totals.in_flight));
    say(this.projects.value, count(totals.projects));
    say(this.nodes.value, count(nodes.length));
    const silent = nodes.filter((node) => !node.answered).length;
    const missing = unowned.length ? `${plural(unowned.length, "partition")} unowned` : silent ? `${silent} silent` : "";
    say(this.nodes.note, missing);
    mark(this.nodes.node, "data-tone", missing ? "fault" : null);
    this.backlog.spark.draw(past.series(null, "backlog"));
  }
}

/** A figure with its label, and with a sparkline if that has a `title`. */
export function figure(label, title = "") {
  const value = el("span", { class: "value", text: "–" });
  const note = el("span", { class: "note" });
  const spark = title ? new Spark(title) : null;
  const node = el("div", { class: "figure" }, el("dt", { text: label }), el("dd", {}, value, note, spark?.node));
  return { node, value, note, spark };
}
