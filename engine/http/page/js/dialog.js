// Questions to whoever sits there. Escape is a no.

import { token } from "./api.js";
import { el } from "./dom.js";

/** Whether it is to be done. */
export async function confirmed({ title, text, act }) {
  return (await asked({ title, body: [el("p", { text })], act })) !== null;
}

/** Ask for the token, and keep it; whether there is one then. `why` says what was wrong with the last one. */
export async function askedForToken(why = "") {
  const field = el("input", { type: "password", id: "token", autocomplete: "off", required: true, spellcheck: "false", "aria-describedby": "token-about" });
  const about = el("p", { id: "token-about", class: "muted", text: "Changes need the token of this node: the file that its setting http_token_file names holds it. It is kept for this tab alone." });
  const wrong = why ? el("p", { class: "wrong", role: "alert", text: why }) : null;
  const body = [wrong, el("label", { for: "token", text: "Token" }), field, about];
  const said = await asked({ title: "Token", body, act: "Go on", value: () => field.value.trim() });
  if (!said) return false;
  token.set(said);
  return true;
}

/** What `value` gives when it is agreed to, null if not. */
function asked({ title, body, act, value = () => true }) {
  const cancel = el("button", { type: "button", class: "quiet", text: "Cancel", on: { click: () => dialog.close() } });
  const go = el("button", { type: "submit", class: "strong", text: act });
  let told = null;
  const agree = (event) => {
    event.preventDefault();
    told = value();
    dialog.close();
  };
  const dialog = el("dialog", { "aria-labelledby": "dialog-title" },
    el("form", { on: { submit: agree } }, el("h2", { id: "dialog-title", text: title }), ...body, el("div", { class: "choices" }, cancel, go)));
  const before = document.activeElement;
  document.body.append(dialog);
  dialog.showModal();
  (dialog.querySelector("input") ?? go).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      // The browser has given the focus back already, and whoever is quick has moved it on since.
      if (document.activeElement === document.body && before?.isConnected) before.focus();
      resolve(told);
    });
  });
}
