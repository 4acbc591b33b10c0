// The stream of overviews. Whoever is interested is told of each, and of how the connection is.

import * as past from "./past.js";

const SILENT_MS = 7_000; // a node that has nothing new says so more often
const AGAIN_MS = 2_000;

let source = null;
let lastHeard = 0;
let again = 0;
const listeners = new Set();

/** `state`: connecting, live, trouble (the node can't see the cluster; `why` says so) or lost. */
export const now = { overview: null, state: "connecting", why: "" };

export function listen(listener) {
  listeners.add(listener);
}

export function start() {
  connect();
  setInterval(look, 1_000);
  addEventListener("online", connect);
}

function connect() {
  source?.close();
  clearTimeout(again);
  lastHeard = Date.now();
  source = new EventSource("/api/events");
  source.addEventListener("history", (event) => heard(() => past.begin(JSON.parse(event.data))));
  source.addEventListener("overview", (event) => heard(() => shown(JSON.parse(event.data))));
  source.addEventListener("trouble", (event) => heard(() => turned("trouble", JSON.parse(event.data).error)));
  source.onerror = () => {
    turned("lost");
    if (source.readyState === EventSource.CLOSED) again = setTimeout(connect, AGAIN_MS); // it gives up by itself
  };
}

function heard(what) {
  lastHeard = Date.now();
  what();
}

function shown(overview) {
  past.add(overview);
  now.overview = overview;
  turned("live");
}

function turned(state, why = "") {
  now.state = state;
  now.why = why;
  for (const listener of listeners) listener(now);
}

/** A connection that says nothing any more may be gone without a word. */
function look() {
  if (Date.now() - lastHeard <= SILENT_MS) return;
  turned("lost");
  connect();
}
