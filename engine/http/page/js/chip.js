// What something waits for, in a word; more for who points at it.

import { el, mark, say } from "./dom.js";
import { explain } from "./tip.js";
import { counted, reason, state } from "./words.js";

/** Empty, and out of the way of the keyboard, until there is something to say. */
export function chip() {
  return el("span", { class: "chip", hidden: true });
}

export function showReason(node, name, reasons = {}) {
  const told = name ? reason(name) : null;
  const queues = Object.keys(reasons).length > 1 || Object.values(reasons)[0] > 1 ? ` (${counted(reasons)})` : "";
  show(node, told && { ...told, meaning: `${told.meaning}${queues}` });
}

export function showState(node, name) {
  show(node, state(name));
}

function show(node, told) {
  mark(node, "hidden", !told);
  mark(node, "tabindex", told ? 0 : null);
  if (!told) return say(node, "");
  say(node, told.label);
  mark(node, "data-tone", told.tone);
  explain(node, told.meaning);
}
