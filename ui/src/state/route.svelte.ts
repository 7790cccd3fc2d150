// Where the page is: read from the address, written to the address.
import type { PairRow } from "../logic/model.js";
import { format, parse, type Route } from "../logic/url.js";

class RouteState {
  now = $state.raw<Route>(parse(location.hash));

  start() {
    addEventListener("hashchange", () => (this.now = parse(location.hash)));
  }

  /** Where to begin when the address says nothing. */
  beginAt(hash: string) {
    if (this.now.screen !== "open") return;
    history.replaceState(null, "", hash);
    this.now = parse(hash);
  }

  /** A step that Back undoes. */
  to(route: Route) {
    location.hash = format(route);
  }

  /** The same place, told more exactly: no step of its own. */
  refine(route: Route) {
    const hash = format(route);
    if (hash !== location.hash) history.replaceState(null, "", hash);
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
