// What happens on the server, told to every tab. One tab of the browser holds the stream and passes on what it hears: a browser has six
// connections to a server, and with a stream in each tab the seventh would never load. Where there are no locks (a plain address that is
// not loopback) every tab asks again and again instead.
import { embedded } from "./embedded.js";
import { json } from "./http.js";
import type { Schemas } from "./schemas.js";

export type ServerEvent = Schemas["Event"];
/** `lost`: the stream broke, and the browser tries again by itself. */
export type Heard = { kind: "lost" } | { kind: "event"; event: ServerEvent } | { kind: "snapshot"; sessions: Schemas["SessionRow"][] };

type Listener = (heard: Heard) => void;

class Events {
  readonly #listeners = new Set<Listener>();
  #started = false;

  listen(listener: Listener): () => void {
    this.#listeners.add(listener);
    if (!embedded) this.#start();
    return () => this.#listeners.delete(listener);
  }

  #tell(heard: Heard) {
    for (const listener of this.#listeners) listener(heard);
  }

  #start() {
    if (this.#started) return;
    this.#started = true;
    if (!("locks" in navigator) || !("BroadcastChannel" in window)) {
      void this.#poll();
      return;
    }
    const channel = new BroadcastChannel("twinscope.events");
    channel.onmessage = (message: MessageEvent<Heard>) => this.#tell(message.data);
    // Held until this tab closes; the next one in line takes over.
    void navigator.locks.request("twinscope.events", () => new Promise<never>(() => this.#stream(channel)));
  }

  #stream(channel: BroadcastChannel) {
    const source = new EventSource("/api/v1/events");
    const pass = (heard: Heard) => {
      this.#tell(heard);
      channel.postMessage(heard);
    };
    source.onerror = () => pass({ kind: "lost" });
    source.onmessage = (message: MessageEvent<string>) => pass({ kind: "event", event: JSON.parse(message.data) as ServerEvent });
    source.addEventListener("snapshot", (message) => {
      const { sessions } = JSON.parse((message as MessageEvent<string>).data) as { sessions: Schemas["SessionRow"][] };
      pass({ kind: "snapshot", sessions });
    });
  }

  async #poll() {
    let since: number | null = null;
    for (;;) {
      try {
        const found: Schemas["EventsDoc"] = await json(`/api/v1/events${since === null ? "" : `?since=${since}`}`);
        since = found.seq;
        if (found.snapshot) this.#tell({ kind: "snapshot", sessions: found.snapshot });
        for (const event of found.events) this.#tell({ kind: "event", event });
      } catch {
        // The server may be back in a moment; what was missed then comes as a snapshot.
        since = null;
        this.#tell({ kind: "lost" });
      }
      await new Promise((done) => setTimeout(done, 400));
    }
  }
}

export const events = new Events();
