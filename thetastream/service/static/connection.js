// Sends requests to the service, with the token if the user has given one. The tab keeps the token until it is closed.

const KEY = "thetastream-token";

export class TokenNeeded extends Error {}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

export async function ask(path) {
  const token = sessionStorage.getItem(KEY);
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const answer = await fetch(path, { headers, signal: AbortSignal.timeout(10000) });
  if (answer.status === 401) throw new TokenNeeded();
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.message ?? `the service answers ${answer.status}`);
  return body;
}
