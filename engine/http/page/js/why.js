// Why a tenant's messages wait, in the node's own sentences.

import { chip, showReason } from "./chip.js";
import { el } from "./dom.js";
import { count, duration, plural } from "./format.js";

export class Why {
  constructor() {
    this.forecast = el("p", { class: "forecast", text: "Asking …" });
    this.rates = el("p", { class: "muted" });
    this.parts = el("div", { class: "parts" });
    this.notes = el("ul", { class: "asides", hidden: true });
    this.node = el("section", { class: "sheet why", "aria-labelledby": "why-title" },
      el("h2", { id: "why-title", text: "Why it waits" }), this.forecast, this.rates, this.parts, this.notes);
    this.shownText = "";
  }

  show(answer) {
    const text = JSON.stringify([answer.priorities, answer.forecast, answer.rates, answer.notes]);
    if (text === this.shownText) return;
    this.shownText = text;
    this.forecast.textContent = `Forecast: ${answer.forecast.sentence}${answer.forecast.resumed_sentence ? `; ${answer.forecast.resumed_sentence}` : ""}`;
    this.rates.textContent = `Rates: ${answer.rates.sentence}`;
    if (!this.parts.contains(document.activeElement)) this.parts.replaceChildren(...answer.priorities.map(priority));
    this.notes.replaceChildren(...answer.notes.map((note) => el("li", { text: note })));
    this.notes.hidden = answer.notes.length === 0;
  }

  fail(sentence) {
    this.shownText = ""; // so that the next answer is shown even if it equals the last one
    this.forecast.textContent = sentence;
  }
}

function priority(part) {
  const figures = [
    `${count(part.waiting)} waiting`, part.waiting ? `the oldest for ${duration(part.oldest_seconds)}` : null,
    `${count(part.in_flight)} in flight`, part.delayed ? `${count(part.delayed)} not due` : null,
  ].filter(Boolean);
  return el("article", {}, el("h3", { text: part.priority }), el("p", { class: "figures", text: figures.join(" · ") }),
    part.reasons.length ? el("ul", { class: "reasons" }, ...part.reasons.map(reasonLine)) : null,
    part.waited_sentence ? el("p", { class: "muted", text: `Waited: ${part.waited_sentence}` }) : null);
}

function reasonLine(each) {
  const node = chip();
  showReason(node, each.reason);
  const many = each.messages === null ? plural(each.groups, "group") : `${plural(each.groups, "group")}, ${plural(each.messages, "message")}`;
  return el("li", {}, node, el("span", { text: each.sentence }), el("span", { class: "muted", text: many }));
}
