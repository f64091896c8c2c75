// Sends requests to the service, with the token if the user has given one. The tab keeps the token until it is closed.

const KEY = "thetastream-token";

export class TokenNeeded extends Error {}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

// Without a question, it is a GET. The service itself ends a statement that takes too long.
export async function ask(path, question = null) {
  const token = sessionStorage.getItem(KEY);
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const body = question === null ? {} : { method: "POST", body: JSON.stringify(question) };
  if (question !== null) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { headers, ...body, signal: AbortSignal.timeout(question === null ? 10000 : 60000) });
  if (answer.status === 401) throw new TokenNeeded();
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.message ?? `the service answers ${answer.status}`);
  return found;
}
