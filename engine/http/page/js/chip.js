// Chips: a status or a wait reason in a word, with its meaning as a tooltip.

import { el, mark, say } from "./dom.js";
import { explain } from "./tip.js";
import { counted, reason, status } from "./words.js";

/** An empty chip. It is hidden, and no tab stop, until it has a text. */
export function chip() {
  return el("span", { class: "chip", hidden: true });
}

export function showReason(node, name, reasons = {}) {
  const words = name ? reason(name) : null;
  const queues = Object.keys(reasons).length > 1 || Object.values(reasons)[0] > 1 ? ` (${counted(reasons)})` : "";
  show(node, words && { ...words, meaning: `${words.meaning}${queues}` });
}

export function showStatus(node, described) {
  show(node, described && status(described));
}

function show(node, words) {
  mark(node, "hidden", !words);
  mark(node, "tabindex", words ? 0 : null);
  if (!words) return say(node, "");
  say(node, words.label);
  mark(node, "data-tone", words.tone);
  explain(node, words.meaning);
}
