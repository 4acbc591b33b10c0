// Requests to the node's HTTP API. An error carries the node's own sentence.

const KEY = "evenlane-token";

export class Failure extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

export async function get(path) {
  return parsed(await request(path, { headers: { accept: "application/json" } }));
}

/** Sends a change, with the token if there is one. */
export async function post(path, body) {
  const headers = { "content-type": "application/json" };
  const secret = token.get();
  if (secret) headers.authorization = `Bearer ${secret}`;
  return parsed(await request(path, { method: "POST", headers, body: body === undefined ? "" : JSON.stringify(body) }));
}

/** The token for changes. The browser keeps it for this tab only. */
export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => sessionStorage.setItem(KEY, text),
  forget: () => sessionStorage.removeItem(KEY),
};

async function request(path, options) {
  try {
    return await fetch(path, { ...options, cache: "no-store", credentials: "same-origin" });
  } catch {
    throw new Failure("the node can't be reached", 0);
  }
}

async function parsed(response) {
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Failure(`the node's answer could not be read (${response.status})`, response.status);
  }
  if (!response.ok) throw new Failure(answer.error ?? `the node answered ${response.status}`, response.status);
  return answer;
}

export const paths = {
  why: (project) => `/api/why/${encodeURIComponent(project)}`,
  dead: (project, limit, error) => `/api/dead/${encodeURIComponent(project)}?limit=${limit}&error=${encodeURIComponent(error)}`,
  errors: (project) => `/api/dead/${encodeURIComponent(project)}/errors`,
  deadLetter: (project, seq) => `/api/dead/${encodeURIComponent(project)}/${encodeURIComponent(seq)}`,
  deadLetters: (project, what) => `/api/dead/${encodeURIComponent(project)}/${what}`,
  topic: (project, what) => `/api/topics/${encodeURIComponent(project)}/${what}`,
};
