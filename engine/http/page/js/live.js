// The stream of overviews. Listeners receive each overview, and each change of the connection's state.

import * as past from "./past.js";

const SILENT_MS = 7_000; // the node sends something more often than that, even if nothing has changed
const RETRY_MS = 2_000;

let source = null;
let receivedAt = 0;
let retry = 0;
const listeners = new Set();

/** `state` is connecting, live, trouble (the node can't see the cluster; `why` is the reason) or lost. */
export const now = { overview: null, state: "connecting", why: "" };

export function listen(listener) {
  listeners.add(listener);
}

export function start() {
  connect();
  setInterval(checkSilence, 1_000);
  addEventListener("online", connect);
}

function connect() {
  source?.close();
  clearTimeout(retry);
  receivedAt = Date.now();
  source = new EventSource("/api/events");
  source.addEventListener("history", (event) => receive(() => past.begin(JSON.parse(event.data))));
  source.addEventListener("overview", (event) => receive(() => show(JSON.parse(event.data))));
  source.addEventListener("trouble", (event) => receive(() => change("trouble", JSON.parse(event.data).error)));
  source.onerror = () => {
    change("lost");
    if (source.readyState === EventSource.CLOSED) retry = setTimeout(connect, RETRY_MS); // the browser has given up
  };
}

function receive(handle) {
  receivedAt = Date.now();
  handle();
}

function show(overview) {
  past.add(overview);
  now.overview = overview;
  change("live");
}

function change(state, why = "") {
  now.state = state;
  now.why = why;
  for (const listener of listeners) listener(now);
}

/** Reconnects after a silence: a connection may break without an event. */
function checkSilence() {
  if (Date.now() - receivedAt <= SILENT_MS) return;
  change("lost");
  connect();
}
