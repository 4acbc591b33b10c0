// What is asked of the node. Errors are its own sentences.

const KEY = "evenlane-token";

export class Failure extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

export async function get(path) {
  return answered(await reached(path, { headers: { accept: "application/json" } }));
}

/** A change: with the token, if there is one. */
export async function post(path, body) {
  const headers = { "content-type": "application/json" };
  const known = token.get();
  if (known) headers.authorization = `Bearer ${known}`;
  return answered(await reached(path, { method: "POST", headers, body: body === undefined ? "" : JSON.stringify(body) }));
}

/** Kept for this tab alone, and gone with it. */
export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => sessionStorage.setItem(KEY, text),
  forget: () => sessionStorage.removeItem(KEY),
};

async function reached(path, options) {
  try {
    return await fetch(path, { ...options, cache: "no-store", credentials: "same-origin" });
  } catch {
    throw new Failure("the node can't be reached", 0);
  }
}

async function answered(response) {
  let told;
  try {
    told = await response.json();
  } catch {
    throw new Failure(`the node's answer could not be read (${response.status})`, response.status);
  }
  if (!response.ok) throw new Failure(told.error ?? `the node answered ${response.status}`, response.status);
  return told;
}

export const paths = {
  why: (project) => `/api/why/${encodeURIComponent(project)}`,
  dead: (project, limit) => `/api/dead/${encodeURIComponent(project)}?limit=${limit}`,
  letter: (project, seq) => `/api/dead/${encodeURIComponent(project)}/${encodeURIComponent(seq)}`,
  replay: (project) => `/api/dead/${encodeURIComponent(project)}/replay`,
  topic: (project, what) => `/api/topics/${encodeURIComponent(project)}/${what}`,
};
