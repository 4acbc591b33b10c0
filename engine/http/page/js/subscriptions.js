// The subscriptions: how far each has come, and which one holds storage. Hidden as long as only the unnamed one exists.

import { el, mark, say } from "./dom.js";
import { UNKNOWN, count } from "./format.js";
import { explain } from "./tip.js";

const COLUMNS = [
  { key: "id", label: "Subscription" },
  { key: "phase", label: "State", text: ({ state }) => state, bad: ({ state }) => state !== "active" },
  { key: "nodes", label: "Nodes", text: ({ nodes }) => count(nodes), bad: ({ nodes }) => nodes === 0 },
  { key: "behind", label: "Behind", text: ({ behind }) => known(behind), about: "Messages after the position up to which it has settled all. Delayed messages aren't counted." },
  { key: "holds", label: "Holds", text: ({ holds }) => known(holds), bad: ({ holds }) => holds > 0, about: "Messages that stay in their streams for this subscription alone: all others have settled them." },
];

const known = (number) => (number === null ? UNKNOWN : count(number));

export class Subscriptions {
  constructor() {
    const heads = COLUMNS.map(({ key, label, text, about }) => {
      const head = el("th", { scope: "col", role: "columnheader", class: text && key !== "phase" ? `${key} number` : key });
      head.append(about ? explain(el("span", { text: label, tabindex: 0, class: "explained" }), about) : label);
      return head;
    });
    this.rows = new Map();
    this.body = el("tbody", { role: "rowgroup" });
    const table = el("table", { class: "nodes subscriptions", role: "table", "aria-label": "Subscriptions" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...heads)), this.body);
    this.node = el("div", { hidden: true, class: "below" }, el("h2", { text: "Subscriptions" }), el("div", { class: "sheet scroll" }, table));
  }

  show(subscriptions) {
    this.node.hidden = subscriptions.length === 0;
    const lines = subscriptions.map((each) => this.line(each));
    if (lines.length !== this.body.children.length || lines.some((line, place) => line !== this.body.children[place])) this.body.replaceChildren(...lines);
  }

  line(each) {
    const name = each.name ?? "(unnamed)";
    let cells = this.rows.get(name);
    if (!cells) {
      cells = COLUMNS.map(({ key, label, text }) =>
        el(key === "id" ? "th" : "td", { ...(key === "id" ? { scope: "row", role: "rowheader", text: name } : { role: "cell" }), class: text && key !== "phase" ? `${key} number` : key, "data-label": label }));
      el("tr", { role: "row" }, ...cells);
      this.rows.set(name, cells);
    }
    COLUMNS.forEach(({ text, bad }, place) => {
      if (text) say(cells[place], text(each));
      if (bad) mark(cells[place], "data-tone", bad(each) ? "fault" : null);
    });
    return cells[0].parentElement;
  }
}
