// A tenant's dead letters by error, and their replay and drop.

import { get, paths } from "./api.js";
import { change } from "./change.js";
import { confirmed } from "./dialog.js";
import { arrange, el, say } from "./dom.js";
import { count, duration, plural } from "./format.js";
import { ErrorGroup } from "./error_group.js";
import { Poll } from "./poll.js";
import { toast } from "./toast.js";

const SOON_MS = 1_500;
const SELDOM_MS = 15_000;
const EACH_MS = 3; // grouping keeps the node busy for a part of that time

export class DeadLetters {
  constructor(project) {
    Object.assign(this, { project, groups: new Map(), answer: null });
    this.poll = new Poll({ ask: () => get(paths.errors(project)), onAnswer: (answer) => this.show(answer), onError: (error) => this.onError(error) });
    this.count = el("span", { class: "muted", role: "status" });
    this.replayAll = el("button", { type: "button", class: "quiet", text: "Replay all", hidden: true, on: { click: () => this.act("replay") } });
    this.dropAll = el("button", { type: "button", class: "quiet", text: "Drop all", hidden: true, on: { click: () => this.act("drop") } });
    this.running = el("p", { class: "running", role: "status", hidden: true });
    this.state = el("p", { class: "muted", text: "Looking …" });
    this.body = el("div", { class: "error-groups" });
    this.node = el("section", { class: "sheet dead", "aria-labelledby": "dead-title" },
      el("div", { class: "bar-of-tools" }, el("h2", { id: "dead-title", text: "Dead letters" }), this.count, el("div", { class: "acts" }, this.replayAll, this.dropAll)),
      this.running, this.state, this.body);
    this.poll.now();
  }

  show(answer) {
    const { total, grouped, errors, replay, drop } = answer;
    const isFirst = this.answer === null;
    this.answer = answer;
    this.state.hidden = total > 0 && grouped >= total && !answer.more_errors;
    say(this.state, total ? partly(answer) : "None: every message was handled, or waits for its next attempt.");
    say(this.count, total ? summary(answer) : "");
    this.replayAll.hidden = total === 0 || this.project === "_stray";
    this.dropAll.hidden = total === 0;
    const isBusy = Boolean(replay ?? drop);
    this.replayAll.disabled = this.dropAll.disabled = isBusy;
    const line = job(answer);
    this.running.hidden = !line;
    this.running.replaceChildren(...(line ?? []));
    this.list(errors, isBusy);
    if (isFirst && errors.length === 1) this.groups.get(errors[0].key).toggle();
    return isBusy ? SOON_MS : Math.max(SELDOM_MS, grouped * EACH_MS);
  }

  onError(error) {
    this.state.hidden = false;
    say(this.state, error.status === 404 ? "None." : error.message);
    return SELDOM_MS;
  }

  list(errors, isBusy) {
    const keys = new Set(errors.map(({ key }) => key));
    for (const key of this.groups.keys()) if (!keys.has(key)) this.groups.delete(key);
    for (const fields of errors) {
      const known = this.groups.get(fields.key);
      if (known) known.show(fields, isBusy);
      else this.groups.set(fields.key, new ErrorGroup(this.project, fields, { replay: (...whom) => this.act("replay", ...whom), drop: (...whom) => this.act("drop", ...whom) }));
    }
    if (!this.body.contains(document.activeElement)) arrange(this.body, errors.map(({ key }) => this.groups.get(key).node));
    else for (const { key } of errors) if (!this.groups.get(key).node.isConnected) this.body.append(this.groups.get(key).node);
    for (const node of [...this.body.children]) if (![...this.groups.values()].some((group) => group.node === node)) node.remove();
  }

  /** Replays or drops one dead letter, those of an error, or all; only those that are shown now. Asks first. */
  async act(what, error = null, letter = null) {
    const which = letter ? { seq: letter.seq } : error ? { error: error.key, until: error.last_seq } : { all: true, until: this.answer.last_seq };
    const many = letter ? 1 : error ? error.count : this.answer.total;
    if (!(await confirmed(question(what, this.project, many, error, letter)))) return;
    const answer = await change(paths.deadLetters(this.project, what), which);
    if (!answer) return;
    if (answer.running) toast(what === "replay" ? "The replay continues: its progress is shown below." : "The drop continues: its progress is shown below.");
    else if (trouble(answer)) toast(trouble(answer), "fault");
    else toast(what === "replay" ? `Replayed ${plural(answer.replayed, "dead letter")}.` : `Dropped ${plural(answer.dropped, "dead letter")}.`);
    await this.poll.now();
    if (!this.node.contains(document.activeElement)) this.node.querySelector("button:not([hidden])")?.focus();
  }

  gone() {
    this.poll.end();
  }
}

function question(what, project, many, error, letter) {
  const name = letter ? `dead letter ${letter.seq}` : many === 1 ? "1 dead letter" : `${count(many)} dead letters`;
  const whose = letter ? `Message ${letter.id}` : `${count(many)} ${many === 1 ? "message" : "messages"} of ${project}`;
  const cause = !letter && error ? `The error: ${[error.reason, error.error].filter(Boolean).join(": ")}` : null;
  const later = letter ? null : "Dead letters that arrive from now on stay.";
  const ends = many === 1 ? ["goes", "is"] : ["go", "are"];
  const texts = what === "replay"
    ? [`${whose} ${ends[0]} back into ${letter ? "its queue" : "their queues, at the rate of the topic, the oldest first,"} for a new first attempt. ${letter ? "The" : "Each"} dead letter is removed once its message is stored there.`, cause, later]
    : [`${whose} ${ends[1]} deleted, with ${many === 1 ? "its body" : "their bodies"}. Nobody can restore ${many === 1 ? "it" : "them"}.`, cause, later];
  const verb = what === "replay" ? "Replay" : "Drop";
  return { title: `${verb} ${name}?`, texts: texts.filter(Boolean), act: letter ? verb : `${verb} ${count(many)}`, isDangerous: what === "drop" };
}

function summary({ total, errors, more_errors: more, keep_seconds: kept }) {
  return `${plural(total, "dead letter")}, ${plural(errors.length + more, "error")}${kept ? ` · kept for ${duration(kept)}` : ""}`;
}

function partly({ total, grouped, more_errors: more }) {
  const texts = [grouped < total ? `The errors of the oldest ${count(grouped)} of ${count(total)} are counted.` : "", more ? `${plural(more, "less frequent error is", "less frequent errors are")} not shown.` : ""];
  return texts.filter(Boolean).join(" ");
}

/** The line about a running job, or about the end of the last one if it left dead letters; null without. */
function job({ replay, drop, last_replay: replayed, last_drop: dropped }) {
  if (replay) {
    const { replayed: done, failed, total, waits } = replay;
    return progress(done + failed, total, `Replaying: ${count(done)} of ${count(total)}${failed ? `, ${count(failed)} failed` : ""}${waits ? `; it waits for ${waits}` : ""}`);
  }
  if (drop) return progress(drop.dropped, drop.total, `Dropping: ${count(drop.dropped)} of ${count(drop.total)}`);
  const ends = [[replayed, "replay"], [dropped, "drop"]].filter(([end]) => end && trouble(end));
  return ends.length ? ends.map(([end, what]) => el("span", { text: `The last ${what}: ${trouble(end)}` })) : null;
}

function progress(done, total, text) {
  return [el("progress", { max: Math.max(1, total), value: done, "aria-label": text }), el("span", { text })];
}

/** Describes the end of a job that left dead letters; empty if it left none. */
function trouble({ replayed, dropped, failed, failures, stopped }) {
  const why = stopped || (failed ? `${plural(failed, "dead letter")} stayed: ${failures[0].error}` : "");
  const done = replayed === undefined ? `${plural(dropped, "dead letter was", "dead letters were")} dropped` : `${plural(replayed, "dead letter")} went back`;
  return why && `${done}; ${why}`;
}
