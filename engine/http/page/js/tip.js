// A tooltip next to the element under the pointer or with the focus. Escape hides it.

import { say } from "./dom.js";

const tip = document.getElementById("tip");
let anchor = null;

export function start() {
  document.addEventListener("pointerover", (event) => over(event.target));
  document.addEventListener("focusin", (event) => over(event.target));
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}

/** Gives `node` a tooltip, which screen readers get as its description. */
export function explain(node, text) {
  if (node.dataset.tip !== text) node.dataset.tip = text;
  return node;
}

function over(target) {
  const node = target.closest?.("[data-tip]");
  if (!node) hide();
  else if (node !== anchor) show(node);
}

function show(node) {
  anchor?.removeAttribute("aria-describedby");
  anchor = node;
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
  anchor?.removeAttribute("aria-describedby");
  anchor = null;
  tip.hidden = true;
}
