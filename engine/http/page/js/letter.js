// One dead letter: why it died, and what it was for who wants to look. All of it is text, whatever it says.

import { get, paths } from "./api.js";
import { el, say } from "./dom.js";
import { ago, bytes, day, plural } from "./format.js";

export class Letter {
  constructor(project, told, replay) {
    Object.assign(this, { project, told, inside: null });
    this.when = el("span", { title: day(told.died_at) });
    this.open = el("button", { type: "button", class: "quiet small", "aria-expanded": "false", text: "Show", "aria-label": `Show dead letter ${told.seq}`, on: { click: () => this.toggle() } });
    const again = el("button", { type: "button", class: "quiet small", text: "Replay", "aria-label": `Replay dead letter ${told.seq}`, on: { click: replay } });
    const facts = [told.queue?.priority ?? "no queue", plural(told.attempts, "attempt"), bytes(told.size)];
    this.node = el("article", { class: "letter", role: "listitem" },
      el("div", { class: "seq number", text: `#${told.seq}` }),
      el("div", { class: "about" }, el("p", { class: "cause" }, el("strong", { text: told.reason || "unknown" }), " ", el("span", { text: told.error })),
        el("p", { class: "muted" }, this.when, ` · ${facts.join(" · ")}`)),
      el("div", { class: "acts" }, this.open, project === "_stray" ? null : again));
    this.age();
  }

  age() {
    say(this.when, ago(this.told.died_at));
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
      box.replaceChildren(...contents(await get(paths.letter(this.project, this.told.seq))));
    } catch (error) {
      box.replaceChildren(el("p", { class: "wrong", text: error.message }));
    }
  }
}

function contents(told) {
  const facts = [["id", told.id], ["key", told.key], ["put", day(told.put_at)], ["died", day(told.died_at)], ["queue", told.subject], ...Object.entries(told.headers)];
  const list = el("dl", { class: "facts-of" });
  for (const [name, value] of facts) if (value) list.append(el("dt", { text: name }), el("dd", { text: value }));
  const kind = told.body === undefined ? "Body, in base64 as it isn't text" : "Body";
  return [list, el("h4", { text: told.cut ? `${kind}, its beginning` : kind }), el("pre", { tabindex: 0, "aria-label": "Body", text: told.body ?? told.body_base64 })];
}
