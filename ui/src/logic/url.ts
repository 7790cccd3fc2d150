// The address is the state: a link to a value opens on that value. Pure: no DOM, no fetch.
import type { Slice } from "./slice.js";

export type Route =
  | { screen: "open" }
  | { screen: "overview"; session: string; query: URLSearchParams }
  | { screen: "map"; session: string }
  | { screen: "pair"; session: string; pair: string; query: URLSearchParams }
  | { screen: "explore"; session: string; query: URLSearchParams }
  | { screen: "tensor"; session: string; tensor: string; query: URLSearchParams };

/** `#/s/ab12/pair/0_query?at=0,3,:,:` */
export function parse(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#/, "").split("?", 2);
  const parts = path.split("/").filter((part) => part !== "").map(decode);
  const query = new URLSearchParams(search);
  const [head, session, screen, rest] = parts;
  if (head !== "s" || session === undefined) return { screen: "open" };
  if (screen === "map") return { screen, session };
  if (screen === "explore") return { screen, session, query };
  if (screen === "pair" && rest !== undefined) return { screen, session, pair: rest, query };
  if (screen === "tensor" && rest !== undefined) return { screen, session, tensor: rest, query };
  return { screen: "overview", session, query };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function format(route: Route): string {
  if (route.screen === "open") return "#/";
  const base = `#/s/${encodeURIComponent(route.session)}`;
  switch (route.screen) {
    case "overview":
      return base + search(route.query);
    case "map":
      return `${base}/map`;
    case "explore":
      return `${base}/explore${search(route.query)}`;
    case "pair":
      return `${base}/pair/${encodeURIComponent(route.pair)}${search(route.query)}`;
    case "tensor":
      return `${base}/tensor/${encodeURIComponent(route.tensor)}${search(route.query)}`;
  }
}

function search(query: URLSearchParams): string {
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  return text === "" ? "" : `?${text}`;
}

/** `d=0,3,r,c` says which dimensions are rows and columns and where the others stand; `r=0+10` and `c=20+10` from where and how many. */
export function writeSlice(query: URLSearchParams, slice: Slice): void {
  if (slice.mode === "flat") query.set("d", "flat");
  else query.set("d", slice.at.map((at, dim) => (dim === slice.rows ? "r" : dim === slice.cols ? "c" : String(at))).join(","));
  if (slice.rows !== null) query.set("r", `${slice.row}.${slice.rowCount}`);
  else query.delete("r");
  query.set("c", `${slice.col}.${slice.colCount}`);
}

/** The slice as written, not yet fitted to a shape; null when the address holds none. */
export function readSlice(query: URLSearchParams): Slice | null {
  const dims = query.get("d");
  if (dims === null) return null;
  const [row, rowCount] = pair(query.get("r"));
  const [col, colCount] = pair(query.get("c"));
  const place = { row, rowCount, col, colCount };
  if (dims === "flat") return { mode: "flat", rows: null, cols: null, at: [], ...place };
  const parts = dims === "" ? [] : dims.split(",");
  const find = (letter: string) => (parts.includes(letter) ? parts.indexOf(letter) : null);
  const at = parts.map((part) => (/^\d+$/.test(part) ? Number(part) : 0));
  const rows = find("r");
  return { mode: rows === null ? "1d" : "2d", rows, cols: find("c"), at, ...place };
}

function pair(text: string | null): [number, number] {
  const [start, count] = (text ?? "").split(".").map(Number);
  return [Number.isFinite(start) && text ? (start as number) : 0, count !== undefined && Number.isFinite(count) ? count : 10];
}

/** `cell=0,17,2231` */
export function readIndex(query: URLSearchParams, key = "cell"): number[] | null {
  const text = query.get(key);
  return text !== null && /^(\d+(,\d+)*)?$/.test(text) ? (text === "" ? [] : text.split(",").map(Number)) : null;
}
