// A tenant's dead letters, and their replay.

import { get, paths } from "./api.js";
import { change } from "./change.js";
import { DeadLetter } from "./dead_letter.js";
import { confirmed } from "./dialog.js";
import { el } from "./dom.js";
import { count, duration, plural } from "./format.js";
import { Poll } from "./poll.js";
import { toast } from "./toast.js";

const LISTED = 50;
const SOON_MS = 1_500;
const SELDOM_MS = 15_000;

export class DeadLetters {
  constructor(project) {
    Object.assign(this, { project, shown: new Map(), limit: LISTED });
    this.poll = new Poll({ ask: () => get(paths.dead(project, this.limit)), onAnswer: (answer) => this.show(answer), onError: (error) => this.onError(error) });
    this.count = el("span", { class: "muted", role: "status" });
    this.all = el("button", { type: "button", class: "quiet", text: "Replay all", hidden: true, on: { click: () => this.replayAll() } });
    this.running = el("p", { class: "running", role: "status", hidden: true });
    this.body = el("div", { class: "dead-letters", role: "list" });
    this.more = el("button", { type: "button", class: "quiet", text: "Show more", hidden: true, on: { click: () => { this.limit = Math.min(1000, this.limit * 4); this.poll.now(); } } });
    this.state = el("p", { class: "muted", text: "Looking …" });
    this.node = el("section", { class: "sheet dead", "aria-labelledby": "dead-title" },
      el("div", { class: "bar-of-tools" }, el("h2", { id: "dead-title", text: "Dead letters" }), this.count, this.all),
      this.running, this.state, this.body, this.more);
    this.poll.now();
  }

  show({ total, letters: listed, keep_seconds: kept, replay, last_replay: last }) {
    this.state.hidden = total > 0;
    this.state.textContent = "None: every message was handled, or waits for its next attempt.";
    this.count.textContent = total ? `${plural(total, "dead letter")}${listed.length < total ? `, the oldest ${listed.length} shown` : ""}${kept ? ` · kept for ${duration(kept)}` : ""}` : "";
    this.all.hidden = total === 0 || this.project === "_stray";
    this.all.disabled = Boolean(replay);
    this.more.hidden = listed.length >= total || this.limit >= 1000;
    const end = last ? trouble(last) : "";
    this.running.hidden = !replay && !end;
    this.running.replaceChildren(...(replay ? progress(replay) : [el("span", { text: `The last replay: ${end}` })]));
    this.list(listed);
    return replay ? SOON_MS : SELDOM_MS;
  }

  onError(error) {
    this.state.hidden = false;
    this.state.textContent = error.status === 404 ? "None." : error.message;
    return SELDOM_MS;
  }

  list(listed) {
    const sequences = new Set(listed.map(({ seq }) => seq));
    for (const [seq, each] of this.shown) if (!sequences.has(seq)) { each.node.remove(); this.shown.delete(seq); }
    for (const fields of listed) {
      if (this.shown.has(fields.seq)) { this.shown.get(fields.seq).showAge(); continue; }
      const deadLetter = new DeadLetter(this.project, fields, () => this.replay(fields));
      this.shown.set(fields.seq, deadLetter);
      this.body.append(deadLetter.node);
    }
  }

  async replay({ id, seq }) {
    const text = `Message ${id} goes back into its queue for a new first attempt. The dead letter is removed once the message is stored there.`;
    if (await confirmed({ title: `Replay dead letter ${seq}?`, text, act: "Replay" })) await this.send({ seq });
  }

  async replayAll() {
    const text = `All present dead letters of ${this.project} go back into their queues, at the rate of its topic, the oldest first.`;
    if (await confirmed({ title: "Replay all dead letters?", text, act: "Replay all" })) await this.send({ all: true });
  }

  async send(which) {
    const answer = await change(paths.replay(this.project), which);
    if (!answer) return;
    if (answer.running) toast("The replay continues: its progress is shown below.");
    else if (trouble(answer)) toast(trouble(answer), "fault");
    else toast(`Replayed ${plural(answer.replayed, "dead letter")}.`);
    await this.poll.now();
    if (!this.node.contains(document.activeElement)) this.node.querySelector("button:not([hidden])")?.focus();
  }

  gone() {
    this.poll.end();
  }
}

/** Describes the end of a replay that left dead letters; empty if it left none. */
function trouble({ replayed, failed, failures, stopped }) {
  const why = stopped || (failed ? `${plural(failed, "dead letter")} stayed: ${failures[0].error}` : "");
  return why && `${plural(replayed, "dead letter")} went back; ${why}`;
}

function progress({ replayed, failed, total, waits }) {
  const text = `Replaying: ${count(replayed)} of ${count(total)}${failed ? `, ${count(failed)} failed` : ""}${waits ? `; it waits for ${waits}` : ""}`;
  return [el("progress", { max: Math.max(1, total), value: replayed + failed, "aria-label": text }), el("span", { text })];
}
