// One way to ask the server: JSON in, JSON out, problems as errors.
import { aborted, problemOf, unreachable } from "./problem.js";

export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (aborted(error)) throw error;
    throw unreachable();
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

export async function json<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await ask(path, signal ? { signal } : {});
  return (await response.json()) as T;
}

export async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { method };
  if (signal) init.signal = signal;
  if (body !== undefined) {
    init.headers = { "content-type": "application/json" };
    init.body = JSON.stringify(body);
  }
  const response = await ask(path, init);
  const text = await response.text();
  return (text === "" ? undefined : JSON.parse(text)) as T;
}
