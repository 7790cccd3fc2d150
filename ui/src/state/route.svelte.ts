// Where the page is: read from the address, written to the address.
import type { PairRow } from "../logic/model.js";
import { format, parse, type Route } from "../logic/url.js";

class RouteState {
  now = $state.raw<Route>(parse(location.hash));
  /** The address that is shown: the browser tells of each change later, of its own and of ours. */
  #shown = location.hash;

  start() {
    addEventListener("hashchange", () => {
      if (location.hash !== this.#shown) this.#take();
    });
  }

  #take() {
    this.#shown = location.hash;
    this.now = parse(location.hash);
  }

  /** Where to begin when the address says nothing. */
  beginAt(hash: string) {
    if (this.now.screen !== "open") return;
    history.replaceState(null, "", hash);
    this.#take();
  }

  /** A step that Back undoes. It is taken at once: the next key belongs to the new screen. */
  to(route: Route) {
    location.hash = format(route);
    this.#take();
  }

  /** The same place, told more exactly: no step of its own. */
  refine(route: Route) {
    const hash = format(route);
    if (hash === location.hash) return;
    history.replaceState(null, "", hash);
    this.#shown = location.hash;
  }
}

export const route = new RouteState();

const empty = () => new URLSearchParams();
/** A link knows a pair by its names, so that it still finds it after others were paired anew. */
export const go = {
  open: () => route.to({ screen: "open" }),
  overview: (session: string) => route.to({ screen: "overview", session, query: empty() }),
  map: (session: string) => route.to({ screen: "map", session }),
  explore: (session: string) => route.to({ screen: "explore", session, query: empty() }),
  pair: (session: string, pair: PairRow, query = empty()) => route.to({ screen: "pair", session, pair: pair.key, query }),
  tensor: (session: string, tensor: string) => route.to({ screen: "tensor", session, tensor, query: empty() }),
};
