// A tenant's dead letters, and their way back.

import { get, paths } from "./api.js";
import { change } from "./change.js";
import { confirmed } from "./dialog.js";
import { el } from "./dom.js";
import { count, duration, plural } from "./format.js";
import { Letter } from "./letter.js";
import { Poll } from "./poll.js";
import { toast } from "./toast.js";

const LISTED = 50;
const SOON_MS = 1_500;
const SELDOM_MS = 15_000;

export class Dead {
  constructor(project) {
    Object.assign(this, { project, letters: new Map(), limit: LISTED });
    this.poll = new Poll({ ask: () => get(paths.dead(project, this.limit)), told: (told) => this.show(told), failed: (error) => this.failed(error) });
    this.count = el("span", { class: "muted", role: "status" });
    this.all = el("button", { type: "button", class: "quiet", text: "Replay all", hidden: true, on: { click: () => this.replayAll() } });
    this.running = el("p", { class: "running", role: "status", hidden: true });
    this.body = el("div", { class: "letters", role: "list" });
    this.more = el("button", { type: "button", class: "quiet", text: "Show more", hidden: true, on: { click: () => { this.limit = Math.min(1000, this.limit * 4); this.poll.now(); } } });
    this.state = el("p", { class: "muted", text: "Looking …" });
    this.node = el("section", { class: "sheet dead", "aria-labelledby": "dead-title" },
      el("div", { class: "bar-of-tools" }, el("h2", { id: "dead-title", text: "Dead letters" }), this.count, this.all),
      this.running, this.state, this.body, this.more);
    this.poll.now();
  }

  show({ total, letters, keep_seconds: kept, replay, last_replay: last }) {
    this.state.hidden = total > 0;
    this.state.textContent = "None: every message was handled, or waits for its next attempt.";
    this.count.textContent = total ? `${plural(total, "letter")}${letters.length < total ? `, the oldest ${letters.length} shown` : ""}${kept ? ` · kept for ${duration(kept)}` : ""}` : "";
    this.all.hidden = total === 0 || this.project === "_stray";
    this.all.disabled = Boolean(replay);
    this.more.hidden = letters.length >= total || this.limit >= 1000;
    const end = last ? trouble(last) : "";
    this.running.hidden = !replay && !end;
    this.running.replaceChildren(...(replay ? progress(replay) : [el("span", { text: `The last replay: ${end}` })]));
    this.list(letters);
    return replay ? SOON_MS : SELDOM_MS;
  }

  failed(error) {
    this.state.hidden = false;
    this.state.textContent = error.status === 404 ? "None." : error.message;
    return SELDOM_MS;
  }

  list(letters) {
    const there = new Set(letters.map((letter) => letter.seq));
    for (const [seq, letter] of this.letters) if (!there.has(seq)) { letter.node.remove(); this.letters.delete(seq); }
    for (const told of letters) {
      if (this.letters.has(told.seq)) { this.letters.get(told.seq).age(); continue; }
      const letter = new Letter(this.project, told, () => this.replay(told));
      this.letters.set(told.seq, letter);
      this.body.append(letter.node);
    }
  }

  async replay(letter) {
    const text = `Message ${letter.id} goes back into its queue for a new first attempt. The letter goes once it is stored there.`;
    if (await confirmed({ title: `Replay dead letter ${letter.seq}?`, text, act: "Replay" })) await this.send({ seq: letter.seq });
  }

  async replayAll() {
    const text = `All dead letters of ${this.project} that are there now go back into their queues, at the rate of its topic, the oldest first.`;
    if (await confirmed({ title: "Replay all dead letters?", text, act: "Replay all" })) await this.send({ all: true });
  }

  async send(which) {
    const told = await change(paths.replay(this.project), which);
    if (!told) return;
    if (told.running) toast("The replay goes on: what is left is counted below.");
    else if (trouble(told)) toast(trouble(told), "fault");
    else toast(`Replayed ${plural(told.replayed, "letter")}.`);
    await this.poll.now();
    if (!this.node.contains(document.activeElement)) this.node.querySelector("button:not([hidden])")?.focus();
  }

  gone() {
    this.poll.end();
  }
}

/** How a replay ended that left letters where they are; empty if it left none. */
function trouble({ replayed, failed, failures, stopped }) {
  const why = stopped || (failed ? `${plural(failed, "letter")} stayed: ${failures[0].error}` : "");
  return why && `${plural(replayed, "letter")} went back; ${why}`;
}

function progress({ replayed, failed, total, waits }) {
  const said = `Replaying: ${count(replayed)} of ${count(total)}${failed ? `, ${count(failed)} failed` : ""}${waits ? `; it waits for ${waits}` : ""}`;
  return [el("progress", { max: Math.max(1, total), value: replayed + failed, "aria-label": said }), el("span", { text: said })];
}
