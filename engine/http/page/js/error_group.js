// Dead letters with the same error: how many, since when, and on request each of them.

import { get, paths } from "./api.js";
import { DeadLetter } from "./dead_letter.js";
import { el, mark, say } from "./dom.js";
import { ago, count, day, plural } from "./format.js";

const LISTED = 20;
const MOST_LISTED = 1000;

export class ErrorGroup {
  /** `replay` and `drop` act on the group, or on one dead letter of it if they get its fields. */
  constructor(project, fields, { replay, drop }) {
    Object.assign(this, { project, fields, replay, drop, shown: new Map(), limit: LISTED, isOpen: false, listed: "" });
    const label = ["Show", "Replay", "Drop"].map((what) => `${what} group: ${fields.error || fields.reason}`);
    this.count = el("div", { class: "seq number" });
    this.when = el("span");
    this.example = el("p", { class: "muted example" });
    this.open = button("Show", label[0], () => this.toggle(), { "aria-expanded": "false" });
    this.acts = [project === "_stray" ? null : button("Replay", label[1], () => replay(this.fields)), button("Drop", label[2], () => drop(this.fields))];
    this.body = el("div", { class: "dead-letters", role: "list", hidden: true });
    this.more = el("button", { type: "button", class: "quiet small", text: "Show more", hidden: true, on: { click: () => this.showMore() } });
    this.state = el("p", { class: "muted", hidden: true });
    this.node = el("section", { class: "error-group", "aria-label": `${fields.reason}: ${fields.error}` },
      el("div", { class: "error-line" }, this.count,
        el("div", { class: "about" }, el("p", { class: "cause" }, el("strong", { text: fields.reason || "unknown" }), " ", el("span", { text: fields.error })),
          el("p", { class: "muted" }, this.when), this.example),
        el("div", { class: "acts" }, this.open, ...this.acts)),
      this.state, this.body, this.more);
    this.show(fields, false);
  }

  show(fields, isBusy) {
    this.fields = fields;
    say(this.count, `${count(fields.count)} ×`);
    const times = fields.count === 1 ? `died ${ago(fields.last_at)}` : `first ${ago(fields.first_at)} · last ${ago(fields.last_at)}`;
    say(this.when, times);
    mark(this.when, "title", `${day(fields.first_at)} to ${day(fields.last_at)}`);
    this.example.hidden = fields.example === fields.error;
    say(this.example, `such as: ${fields.example}`);
    for (const act of this.acts) if (act) act.disabled = isBusy;
    if (this.isOpen && this.listed !== `${fields.count} ${fields.last_seq}`) this.read();
    for (const each of this.shown.values()) each.showAge();
  }

  toggle() {
    this.isOpen = !this.isOpen;
    mark(this.open, "aria-expanded", String(this.isOpen));
    say(this.open, this.isOpen ? "Hide" : "Show");
    this.body.hidden = !this.isOpen;
    if (this.isOpen) return this.read();
    this.more.hidden = this.state.hidden = true;
    return null;
  }

  showMore() {
    this.limit = Math.min(MOST_LISTED, this.limit * 4);
    return this.read();
  }

  async read() {
    this.listed = `${this.fields.count} ${this.fields.last_seq}`;
    try {
      const { letters } = await get(paths.dead(this.project, this.limit, this.fields.key));
      if (this.isOpen) this.list(letters);
    } catch (error) {
      this.listed = "";
      this.state.hidden = false;
      say(this.state, error.message);
    }
  }

  list(letters) {
    const sequences = new Set(letters.map(({ seq }) => seq));
    for (const [seq, each] of this.shown) if (!sequences.has(seq)) { each.node.remove(); this.shown.delete(seq); }
    for (const fields of letters) {
      if (this.shown.has(fields.seq)) continue;
      const deadLetter = new DeadLetter(this.project, fields, { replay: () => this.replay(this.fields, fields), drop: () => this.drop(this.fields, fields) });
      this.shown.set(fields.seq, deadLetter);
      this.body.append(deadLetter.node);
    }
    const rest = this.fields.count - letters.length;
    this.more.hidden = rest <= 0 || this.limit >= MOST_LISTED;
    this.state.hidden = rest <= 0;
    say(this.state, `The oldest ${count(letters.length)} are shown, ${plural(Math.max(0, rest), "more is", "more are")} there.`);
  }
}

function button(text, label, click, more = {}) {
  return el("button", { type: "button", class: "quiet small", text, "aria-label": label, ...more, on: { click } });
}
