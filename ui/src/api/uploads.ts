// Files of any size to the server: raw bytes, with progress, to be stopped and gone on with.
import { Problem } from "./problem.js";
import { ask, send } from "./http.js";
import type { Dropped } from "./dropped.js";
import type { Schemas } from "./schemas.js";

export type Upload = Schemas["Upload"];
const PIECE = 64 * 1024 * 1024;

export interface Watching {
  /** Bytes that arrived so far. */
  progress: (received: number) => void;
  signal: AbortSignal;
}

/** Announces the files, then sends each from where the server has it. `before` is an upload to go on with. */
export async function upload(dropped: Dropped, before: Upload | null, { progress, signal }: Watching, begun: (upload: Upload) => void): Promise<Upload> {
  const files = dropped.files.map(({ file, path }) => ({ path, bytes: file.size }));
  const started = before ?? (await send<Upload>("POST", "/api/v1/uploads", { name: dropped.name, files }, signal));
  begun(started);
  let done = 0;
  for (const [at, { file }] of dropped.files.entries()) {
    let offset = await received(started.upload, at, signal);
    while (offset < file.size || (file.size === 0 && offset === 0)) {
      const piece = file.slice(offset, offset + PIECE);
      await put(started.upload, at, offset, piece, signal, (sent) => progress(done + offset + sent));
      offset += piece.size;
      if (file.size === 0) break;
    }
    done += file.size;
    progress(done);
  }
  return send<Upload>("GET", `/api/v1/uploads/${started.upload}`);
}

async function received(upload: string, file: number, signal: AbortSignal): Promise<number> {
  const response = await ask(`/api/v1/uploads/${upload}/files/${file}`, { method: "HEAD", signal });
  return Number(response.headers.get("upload-offset") ?? 0);
}

/** `fetch` cannot tell how much it has sent, so this is the older way. */
function put(upload: string, file: number, offset: number, piece: Blob, signal: AbortSignal, sent: (bytes: number) => void): Promise<void> {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `/api/v1/uploads/${upload}/files/${file}`);
    request.setRequestHeader("content-type", "application/octet-stream");
    request.setRequestHeader("upload-offset", String(offset));
    request.upload.onprogress = (event) => sent(event.loaded);
    request.onload = () => (request.status < 300 ? done() : failed(problem(request)));
    request.onerror = () => failed(new Problem("the connection broke", 0, "unreachable", "What has arrived is kept; resume to send the rest."));
    request.onabort = () => failed(new DOMException("stopped", "AbortError"));
    signal.addEventListener("abort", () => request.abort(), { once: true });
    if (signal.aborted) return request.abort();
    request.send(piece);
  });
}

function problem(request: XMLHttpRequest): Problem {
  try {
    const { detail, code, hint } = JSON.parse(request.responseText) as Record<string, string | undefined>;
    return new Problem(detail ?? request.statusText, request.status, code ?? "unknown", hint ?? null);
  } catch {
    return new Problem(`the server answered ${request.status}`, request.status, "unknown", null);
  }
}

/** Bytes that the server has. */
export async function arrived(upload: string): Promise<number> {
  return (await send<Upload>("GET", `/api/v1/uploads/${upload}`)).received;
}

export async function forget(upload: string): Promise<void> {
  await ask(`/api/v1/uploads/${upload}`, { method: "DELETE" });
}
