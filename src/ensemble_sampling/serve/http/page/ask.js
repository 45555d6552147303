// Requests to the service's own API, by the key of this tab.

export const KEY = "ensemble-sampling key";

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, method = "GET", body = undefined) {
  const headers = { Accept: "application/json" };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  const content = body === undefined ? undefined : JSON.stringify(body);
  let answer;
  try {
    const about = { method, headers, body: content, cache: "no-store", signal: AbortSignal.timeout(15000) };
    answer = await fetch(`v1/${path}`, about);
  } catch (error) {
    throw new Failure(0, error.name === "TimeoutError" ? "it took too long" : "no connection");
  }
  if (answer.status === 204) return null;
  const found = await answer.json().catch(() => null);
  if (!answer.ok) throw new Failure(answer.status, found?.error?.message ?? answer.statusText);
  if (found === null) throw new Failure(answer.status, "its answer is no JSON");
  return found;
}
