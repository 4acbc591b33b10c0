// Why a tenant's messages wait, in the node's own sentences.

import { chip, showReason } from "./chip.js";
import { el } from "./dom.js";
import { count, duration, plural } from "./format.js";
import { reason } from "./words.js";

export class Why {
  constructor() {
    this.forecast = el("p", { class: "forecast", text: "Asking …" });
    this.rates = el("p", { class: "muted" });
    this.parts = el("div", { class: "parts" });
    this.notes = el("ul", { class: "asides", hidden: true });
    this.node = el("section", { class: "sheet why", "aria-labelledby": "why-title" },
      el("h2", { id: "why-title", text: "Why it waits" }), this.forecast, this.rates, this.parts, this.notes);
    this.said = "";
  }

  show(told) {
    const said = JSON.stringify([told.priorities, told.forecast, told.rates, told.notes]);
    if (said === this.said) return;
    this.said = said;
    this.forecast.textContent = `Forecast: ${told.forecast.sentence}${told.forecast.resumed_sentence ? `; ${told.forecast.resumed_sentence}` : ""}`;
    this.rates.textContent = `Rates: ${told.rates.sentence}`;
    if (!this.parts.contains(document.activeElement)) this.parts.replaceChildren(...told.priorities.map(part));
    this.notes.replaceChildren(...told.notes.map((note) => el("li", { text: note })));
    this.notes.hidden = told.notes.length === 0;
  }

  failed(sentence) {
    this.said = ""; // the next answer is shown, even if it is the last one's
    this.forecast.textContent = sentence;
  }
}

function part(told) {
  const facts = [
    `${count(told.waiting)} waiting`, told.waiting ? `the oldest for ${duration(told.oldest_seconds)}` : null,
    `${count(told.in_flight)} in flight`, told.delayed ? `${count(told.delayed)} not due` : null,
  ].filter(Boolean);
  const waited = told.waited.map((each) => `${duration(each.seconds)} for ${reason(each.reason).label}`).join(", ");
  return el("article", {}, el("h3", { text: told.priority }), el("p", { class: "facts", text: facts.join(" · ") }),
    told.reasons.length ? el("ul", { class: "reasons" }, ...told.reasons.map(reasonLine)) : null,
    waited ? el("p", { class: "muted", text: `Waited of late: ${waited}` }) : null);
}

function reasonLine(each) {
  const node = chip();
  showReason(node, each.reason);
  const many = each.messages === null ? plural(each.groups, "group") : `${plural(each.groups, "group")}, ${plural(each.messages, "message")}`;
  return el("li", {}, node, el("span", { text: each.sentence }), el("span", { class: "muted", text: many }));
}
