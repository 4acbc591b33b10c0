// The statuses of one tenant, the most urgent first: what is so, and what to do.

import { chip, showStatus } from "./chip.js";
import { el, mark } from "./dom.js";

export class Statuses {
  constructor() {
    this.node = el("ul", { class: "statuses sheet", "aria-label": "Status", hidden: true });
    this.shownText = "";
  }

  /** Shows the fields `status` and `also` of an answer about the tenant. */
  show({ status, also }) {
    const all = [status, ...also].filter((each) => each.name !== "ok");
    const text = JSON.stringify(all);
    if (text === this.shownText) return;
    this.shownText = text;
    mark(this.node, "hidden", all.length === 0);
    this.node.replaceChildren(...all.map(line));
  }
}

function line(status) {
  const label = chip();
  showStatus(label, status);
  return el("li", { "data-severity": status.severity }, label, el("div", {},
    el("p", { class: "so", text: `${capital(status.sentence)}.` }),
    status.remedy ? el("p", { class: "muted" }, ...withCommands(`To do: ${status.remedy}.`)) : null));
}

/** The text with what is between backticks as code. */
function withCommands(text) {
  return text.split("`").map((part, place) => (place % 2 ? el("code", { text: part }) : part));
}

function capital(sentence) {
  return sentence.charAt(0).toUpperCase() + sentence.slice(1);
}
