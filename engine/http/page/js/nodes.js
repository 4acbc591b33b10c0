// The nodes: their partitions, and the state of each node.

import { arrange, el, mark, say } from "./dom.js";
import { count, duration, milliseconds, plural, ranges, rate, share } from "./format.js";
import { Ring, colour } from "./ring.js";
import { showUse } from "./row.js";
import { Subscriptions } from "./subscriptions.js";
import { explain } from "./tip.js";

const SLOW_LOOP_S = 0.25;
const SLOW_SETTLES_S = 2;

const TROUBLES = { blocked: "blocked", ownership: "owners differ", store: "can't settle" };

const COLUMNS = [
  { key: "id", label: "Node" },
  { key: "owns", label: "Partitions", text: (node) => count(node.partitions.length) },
  { key: "slots", label: "Slots busy" },
  { key: "backlog", label: "Backlog", text: (node) => count(node.backlog) },
  { key: "arriving", label: "Arriving /s", text: (node) => rate(node.arriving) },
  { key: "handled", label: "Handled /s", text: (node) => rate(node.handled) },
  { key: "failed", label: "Failed /s", text: (node) => rate(node.failed) },
  { key: "cpu", label: "CPU", text: (node) => share(node.cpu) },
  {
    key: "lease", label: "Lease left", text: (node) => (node.lease_seconds !== null && node.lease_seconds <= 0 ? "ended" : duration(node.lease_seconds)),
    bad: (node) => node.lease_seconds !== null && node.lease_seconds <= 0, about: "How long the node may hand out messages without another answer from etcd.",
  },
  { key: "settles", label: "Settle lag", text: (node) => milliseconds(node.settle_lag_seconds), bad: (node) => node.settle_lag_seconds > SLOW_SETTLES_S, about: "How long the oldest result has not been durable." },
  { key: "loop", label: "Loop lag", text: (node) => milliseconds(node.loop_lag_seconds), bad: (node) => node.loop_lag_seconds > SLOW_LOOP_S, about: "The longest recent pause of the node's event loop." },
  { key: "version", label: "Version", text: (node) => node.version || "" },
];

export class Nodes {
  constructor() {
    this.rows = new Map();
    this.ring = new Ring();
    const heads = COLUMNS.map(({ key, label, text, about }) => {
      const head = el("th", { scope: "col", role: "columnheader", class: text ? `${key} number` : key });
      head.append(about ? explain(el("span", { text: label, tabindex: 0, class: "explained" }), about) : label);
      return head;
    });
    this.body = el("tbody", { role: "rowgroup" });
    const table = el("table", { class: "nodes", role: "table", "aria-label": "Nodes" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...heads)), this.body);
    this.subscriptions = new Subscriptions();
    this.owned = el("tbody");
    const asTable = el("details", { class: "as-table" }, el("summary", { text: "Owners as a table" }),
      el("table", { class: "plain" }, el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "Node" }), el("th", { scope: "col", text: "Partitions" }))), this.owned));
    this.node = el("section", { class: "cluster", "aria-label": "Nodes and partitions" },
      el("h1", { text: "Nodes and partitions", tabindex: -1 }),
      el("div", { class: "sides" }, el("div", { class: "sheet" }, this.ring.node, asTable), el("div", { class: "sheet scroll" }, table)),
      this.subscriptions.node);
  }

  show(overview) {
    this.ring.show(overview);
    arrange(this.body, overview.nodes.map((node) => this.row(node, overview.nodes)));
    this.showOwners(overview);
    this.subscriptions.show(overview.subscriptions ?? []);
  }

  row(node, nodes) {
    let row = this.rows.get(node.id);
    if (!row) {
      row = new NodeRow(node.id, this.ring);
      this.rows.set(node.id, row);
    }
    row.show(node, colour(nodes, node.id));
    return row.line;
  }

  showOwners({ nodes, unowned }) {
    const parts = [...nodes.map((node) => [node.id, ranges(node.partitions)]), ...(unowned.length ? [["nobody", ranges(unowned)]] : [])];
    const text = JSON.stringify(parts);
    if (text === this.shownText) return;
    this.shownText = text;
    this.owned.replaceChildren(...parts.map(([owner, which]) =>
      el("tr", {}, el("th", { scope: "row", text: owner }), el("td", { text: which || "none" }))));
  }
}

class NodeRow {
  constructor(id, ring) {
    this.cells = Object.fromEntries(COLUMNS.map(({ key, label, text }) =>
      [key, el(key === "id" ? "th" : "td", { ...(key === "id" ? { scope: "row", role: "rowheader" } : { role: "cell" }), class: text ? `${key} number` : key, "data-label": label })]));
    this.swatch = el("i", { class: "swatch", "aria-hidden": "true" });
    this.link = el("a", { text: id });
    this.mark = el("span", { class: "chip", "data-tone": "lead", text: "leader", hidden: true });
    explain(this.mark, "It assigns partitions to nodes, and accepts topics.");
    this.silent = el("span", { class: "chip", "data-tone": "fault", text: "no answer", hidden: true });
    this.trouble = el("span", { class: "chip", "data-tone": "fault", hidden: true });
    this.cells.id.append(this.swatch, this.link, this.mark, this.silent, this.trouble);
    this.bar = el("i", { class: "bar" });
    this.slots = el("span");
    this.cells.slots.append(this.slots, el("span", { class: "track", "aria-hidden": "true" }, this.bar));
    this.line = el("tr", { role: "row", on: { pointerenter: () => ring.light(id), pointerleave: () => ring.light(undefined) } }, ...Object.values(this.cells));
  }

  show(node, owner) {
    this.swatch.className = `swatch ${owner}`;
    mark(this.link, "href", /^https?:\/\//.test(node.http ?? "") ? `${node.http}/#/nodes` : null);
    mark(this.link, "title", node.host ? `${node.host}, ${plural(node.partitions.length, "partition")}, generation ${node.generation ?? "–"}` : null);
    this.mark.hidden = !node.leader;
    this.silent.hidden = node.answered;
    const troubles = Object.entries(node.troubles ?? {});
    this.trouble.hidden = troubles.length === 0;
    say(this.trouble, troubles.map(([kind]) => TROUBLES[kind] ?? kind).join(", "));
    mark(this.trouble, "title", troubles.map(([, sentence]) => `node ${node.id} ${sentence}`).join("\n") || null);
    this.line.classList.toggle("silent", !node.answered);
    say(this.slots, node.slots === null ? "–" : `${count(node.in_flight)} of ${count(node.slots)}`);
    showUse(this.bar, node.slots ? node.in_flight / node.slots : null);
    for (const { key, text, bad } of COLUMNS) {
      if (text) say(this.cells[key], text(node));
      if (bad) mark(this.cells[key], "data-tone", bad(node) ? "fault" : null);
    }
  }
}
