// One of the two boxes of the first screen: a path that is typed, or an upload that is on its way.
import { picked, single, type Dropped } from "../api/dropped.js";
import { aborted, Problem } from "../api/problem.js";
import { arrived, forget, upload, type Upload } from "../api/uploads.js";
import { kindOf, type SourceKind } from "../logic/opening.js";

export class SourceBox {
  path = $state("");
  dropped = $state.raw<Dropped | null>(null);
  sent = $state.raw<Upload | null>(null);
  received = $state(0);
  sending = $state(false);
  complete = $state(false);
  problem = $state<string | null>(null);
  /** What can be done about it. */
  hint = $state<string | null>(null);
  #abort: AbortController | null = null;
  #began = 0;
  #from = 0;

  total = $derived(this.dropped?.files.reduce((sum, { file }) => sum + file.size, 0) ?? 0);
  kind = $derived.by((): SourceKind | null => {
    if (this.dropped) return kindOf(this.dropped.name, this.dropped.folder);
    return this.path.trim() === "" ? null : kindOf(this.path.trim());
  });
  ready = $derived(this.dropped ? this.complete : this.path.trim() !== "");

  /** Bytes per second since sending began. */
  get speed(): number {
    const seconds = (performance.now() - this.#began) / 1000;
    return seconds > 0.5 ? (this.received - this.#from) / seconds : 0;
  }

  async put(dropped: Dropped) {
    await this.clear();
    if (dropped.files.length === 0) {
      this.problem = `“${dropped.name}” holds no files`;
      return;
    }
    this.dropped = dropped;
    await this.resume();
  }

  files(list: FileList | null) {
    const files = [...(list ?? [])];
    const [first] = files;
    const found = files.length === 1 && first && first.webkitRelativePath === "" ? single(first) : picked(files);
    return found ? this.put(found) : Promise.resolve();
  }

  /** Sends, or goes on sending, what the server does not have yet. */
  async resume() {
    if (!this.dropped) return;
    const abort = new AbortController();
    this.#abort = abort;
    [this.sending, this.problem, this.hint, this.#began, this.#from] = [true, null, null, performance.now(), this.received];
    try {
      const watching = { signal: abort.signal, progress: (received: number) => (this.received = received) };
      this.sent = await upload(this.dropped, this.sent, watching, (begun) => (this.sent = begun));
      this.complete = this.sent.complete;
    } catch (error) {
      if (!aborted(error)) [this.problem, this.hint] = [error instanceof Error ? error.message : String(error), error instanceof Problem ? error.hint : null];
      // What was sent is not what has arrived.
      const there = this.sent && this.#abort === abort ? await arrived(this.sent.upload).catch(() => null) : null;
      if (there !== null && this.#abort === abort) this.received = there;
    } finally {
      if (this.#abort === abort) this.sending = false;
    }
  }

  pause() {
    this.#abort?.abort();
    this.sending = false;
  }

  async clear() {
    this.pause();
    const old = this.sent;
    [this.dropped, this.sent, this.received, this.complete, this.problem, this.hint, this.path] = [null, null, 0, false, null, null, ""];
    this.#abort = null;
    if (old) await forget(old.upload).catch(() => undefined);
  }

  /** What `open` is asked for. The upload then belongs to the session. */
  spec(): { path: string } | { upload: string } {
    return this.sent && this.dropped ? { upload: this.sent.upload } : { path: this.path.trim() };
  }
}
