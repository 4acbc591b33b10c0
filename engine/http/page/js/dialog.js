// Modal questions to the user. Escape means no.

import { token } from "./api.js";
import { el } from "./dom.js";

/** Returns whether the user agrees to what the `texts` say. What can't be undone is `isDangerous`. */
export async function confirmed({ title, texts, act, isDangerous = false }) {
  return (await ask({ title, body: texts.map((text) => el("p", { text })), act, isDangerous })) !== null;
}

/** Asks for the token and stores it; returns whether there is one. `why` says what was wrong with the last one. */
export async function askForToken(why = "") {
  const field = el("input", { type: "password", id: "token", autocomplete: "off", required: true, spellcheck: "false", "aria-describedby": "token-about" });
  const about = el("p", { id: "token-about", class: "muted", text: "Changes need the token of this node. It is in the file that the setting http_token_file names. The browser keeps it for this tab only." });
  const wrong = why ? el("p", { class: "wrong", role: "alert", text: why }) : null;
  const body = [wrong, el("label", { for: "token", text: "Token" }), field, about];
  const secret = await ask({ title: "Token", body, act: "Continue", value: () => field.value.trim() });
  if (!secret) return false;
  token.set(secret);
  return true;
}

/** Returns the result of `value` if the user agrees, otherwise null. */
function ask({ title, body, act, isDangerous = false, value = () => true }) {
  const cancel = el("button", { type: "button", class: "quiet", text: "Cancel", on: { click: () => dialog.close() } });
  const go = el("button", { type: "submit", class: isDangerous ? "strong danger" : "strong", text: act });
  let result = null;
  const agree = (event) => {
    event.preventDefault();
    result = value();
    dialog.close();
  };
  const dialog = el("dialog", { "aria-labelledby": "dialog-title" },
    el("form", { on: { submit: agree } }, el("h2", { id: "dialog-title", text: title }), ...body, el("div", { class: "choices" }, cancel, go)));
  const before = document.activeElement;
  document.body.append(dialog);
  dialog.showModal();
  (dialog.querySelector("input") ?? (isDangerous ? cancel : go)).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      // The browser has restored the focus already, and a quick user may have moved it since.
      if (document.activeElement === document.body && before?.isConnected) before.focus();
      resolve(result);
    });
  });
}
