// One dead letter: its reason, and its content on request. All of it is shown as text, never parsed as HTML.

import { get, paths } from "./api.js";
import { el, say } from "./dom.js";
import { ago, bytes, day, plural } from "./format.js";

export class DeadLetter {
  /** `fields` are those of the list's JSON. */
  constructor(project, fields, { replay, drop }) {
    Object.assign(this, { project, fields, inside: null });
    this.when = el("span", { title: day(fields.died_at) });
    this.open = el("button", { type: "button", class: "quiet small", "aria-expanded": "false", text: "Show", "aria-label": `Show dead letter ${fields.seq}`, on: { click: () => this.toggle() } });
    const away = el("button", { type: "button", class: "quiet small", text: "Drop", "aria-label": `Drop dead letter ${fields.seq}`, on: { click: drop } });
    const again = el("button", { type: "button", class: "quiet small", text: "Replay", "aria-label": `Replay dead letter ${fields.seq}`, on: { click: replay } });
    const details = [fields.queue?.priority ?? "no queue", plural(fields.attempts, "attempt"), bytes(fields.size)];
    this.node = el("article", { class: "dead-letter", role: "listitem" },
      el("div", { class: "seq number", text: `#${fields.seq}` }),
      el("div", { class: "about" }, el("p", { class: "cause" }, el("strong", { text: fields.reason || "unknown" }), " ", el("span", { text: fields.error })),
        el("p", { class: "muted" }, this.when, ` · ${details.join(" · ")}`)),
      el("div", { class: "acts" }, this.open, project === "_stray" ? null : again, away));
    this.showAge();
  }

  showAge() {
    say(this.when, ago(this.fields.died_at));
  }

  async toggle() {
    const isOpen = this.inside !== null;
    this.open.setAttribute("aria-expanded", String(!isOpen));
    say(this.open, isOpen ? "Show" : "Hide");
    if (isOpen) {
      this.inside.remove();
      this.inside = null;
      return;
    }
    const box = el("div", { class: "inside" }, el("p", { class: "muted", text: "Reading …" }));
    this.inside = box;
    this.node.append(box);
    try {
      box.replaceChildren(...contents(await get(paths.deadLetter(this.project, this.fields.seq))));
    } catch (error) {
      box.replaceChildren(el("p", { class: "wrong", text: error.message }));
    }
  }
}

function contents(message) {
  const rows = [["id", message.id], ["key", message.key], ["put", day(message.put_at)], ["died", day(message.died_at)], ["queue", message.subject], ...Object.entries(message.headers)];
  const list = el("dl", { class: "fields" });
  for (const [name, value] of rows) if (value) list.append(el("dt", { text: name }), el("dd", { text: value }));
  const kind = message.body === undefined ? "Body, in base64 as it isn't text" : "Body";
  return [list, el("h4", { text: message.cut ? `${kind}, its beginning` : kind }), el("pre", { tabindex: 0, "aria-label": "Body", text: message.body ?? message.body_base64 })];
}
