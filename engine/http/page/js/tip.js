// A few words beside what is pointed at, or has the focus. Escape takes them away.

import { say } from "./dom.js";

const tip = document.getElementById("tip");
let beside = null;

export function start() {
  document.addEventListener("pointerover", (event) => over(event.target));
  document.addEventListener("focusin", (event) => over(event.target));
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}

/** Have it told what `node` means; it says so to screen readers by itself. */
export function explain(node, text) {
  if (node.dataset.tip !== text) node.dataset.tip = text;
  return node;
}

function over(target) {
  const node = target.closest?.("[data-tip]");
  if (!node) hide();
  else if (node !== beside) show(node);
}

function show(node) {
  beside?.removeAttribute("aria-describedby");
  beside = node;
  if (!node.dataset.tip) return hide();
  say(tip, node.dataset.tip);
  node.setAttribute("aria-describedby", "tip");
  tip.hidden = false;
  place(node.getBoundingClientRect(), tip.getBoundingClientRect());
}

function place(of, own) {
  const left = Math.min(Math.max(8, of.left + of.width / 2 - own.width / 2), innerWidth - own.width - 8);
  const above = of.top - own.height - 6;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above > 8 ? above : of.bottom + 6}px`;
}

function hide() {
  beside?.removeAttribute("aria-describedby");
  beside = null;
  tip.hidden = true;
}
