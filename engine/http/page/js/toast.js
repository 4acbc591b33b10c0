// A notification about the last action. An error stays until it is closed.

import { el } from "./dom.js";

const READ_MS = 8_000;
const box = document.getElementById("toast");
let end = 0;

export function toast(text, tone = "good") {
  clearTimeout(end);
  const close = el("button", { type: "button", class: "close", "aria-label": "Close", text: "×", on: { click: () => box.replaceChildren() } });
  box.replaceChildren(el("p", { "data-tone": tone }, el("span", { text }), close));
  if (tone !== "fault") end = setTimeout(() => box.replaceChildren(), READ_MS);
}
