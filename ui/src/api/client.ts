// Every question the page asks the server, by name. A report in one file answers some of them itself.
import type { Block, Cell } from "../logic/cells.js";
import type { Plane, Side } from "../logic/model.js";
import { PLANES } from "../logic/model.js";
import type { Slice } from "../logic/slice.js";
import type { Viewport } from "../logic/viewport.js";
import * as embeddedReport from "./embedded.js";
import { ask, json, send } from "./http.js";
import type { Schemas } from "./schemas.js";

const { embedded } = embeddedReport;
const BASE = "/api/v1";
const at = (session: string, rest = "") => `${BASE}/sessions/${encodeURIComponent(session)}${rest}`;

export interface Pattern {
  reference: string;
  candidate?: string | null | undefined;
}

/** What can be chosen about a comparison: the keys of `--config`. */
export interface Settings {
  rules: string[];
  patterns: Pattern[];
  plugins: string[];
  fuzzy_threshold: number;
  layer_offset: number | null;
  map: unknown[];
  only: string[];
  skip: string[];
  rtol: number | null;
  atol: number | null;
  [more: string]: unknown;
}

export type Edit =
  | { kind: "pair" | "unpair"; reference: string[]; candidate: string[] }
  | { kind: "accept"; side: Side; name: string }
  | { kind: "accept_all"; score: number }
  | { kind: "layout"; name: string; steps: string | null }
  | { kind: "settings"; settings: Settings }
  | { kind: "import_map" | "import_settings"; text: string }
  | { kind: "order"; keys: string[] | null }
  | { kind: "move"; key: string; to: number };

export const server = () => json<Schemas["ServerDoc"]>(`${BASE}/server`);
export const complete = (typed: string, signal: AbortSignal) => json<Schemas["Completion"][]>(`${BASE}/paths?typed=${encodeURIComponent(typed)}`, signal);
export const sessions = () => json<Schemas["SessionRow"][]>(`${BASE}/sessions`);
export const open = (request: { reference: object; candidate?: object; settings?: object; compare?: boolean }) => send<Schemas["SessionDoc"]>("POST", `${BASE}/open`, request);
export const remove = (session: string) => send<undefined>("DELETE", at(session));
export const session = (id: string) => (embedded ? Promise.resolve(embeddedReport.sessionDoc(embedded)) : json<Schemas["SessionDoc"]>(at(id)));
export const change = (id: string, change: { name?: string; notes?: string }) => send<Schemas["SessionDoc"]>("PATCH", at(id), change);
export const compare = (id: string) => send<Schemas["SessionDoc"]>("POST", at(id, "/comparison"));
export const cancel = (id: string) => send<undefined>("DELETE", at(id, "/comparison"));
export const pairs = (id: string) => (embedded ? Promise.resolve(embeddedReport.pairsDoc(embedded)) : json<Schemas["PairsDoc"]>(at(id, "/pairs")));
export const pair = (id: string, nth: number, signal?: AbortSignal) =>
  embedded ? Promise.resolve(embeddedReport.pairDoc(embedded, nth)) : json<Schemas["PairDoc"]>(at(id, `/pairs/${nth}`), signal);
export const layouts = (id: string, nth: number) => json<Schemas["LayoutDoc"][]>(at(id, `/pairs/${nth}/layouts`));
export const edit = (id: string, edit: Edit) => send<Schemas["SessionDoc"]>("POST", at(id, "/edits"), edit);
export const undo = (id: string) => send<Schemas["SessionDoc"]>("POST", at(id, "/undo"));
export const redo = (id: string) => send<Schemas["SessionDoc"]>("POST", at(id, "/redo"));
export const settings = (id: string) => json<Settings>(at(id, "/settings"));
export const tensors = (id: string, side: Side) => json<Schemas["TensorsDoc"]>(at(id, `/sources/${side}/tensors`));

export async function importReport(file: Blob): Promise<Schemas["SessionDoc"]> {
  const response = await ask(`${BASE}/import`, { method: "POST", headers: { "content-type": "application/octet-stream" }, body: file });
  return (await response.json()) as Schemas["SessionDoc"];
}

export function links(id: string) {
  return {
    html: at(id, "/report.html"),
    json: at(id, "/report.json"),
    csv: at(id, "/report.csv"),
    pairing: at(id, "/map.json"),
    pairingCsv: at(id, "/map.csv"),
    settings: at(id, "/settings.toml"),
  };
}

/** What is looked at: a pair, or one tensor of a side. */
export type Subject = { session: string; pair: number } | { session: string; side: Side; tensor: number };

export function subjectPath(subject: Subject, rest: string): string {
  return "pair" in subject ? at(subject.session, `/pairs/${subject.pair}${rest}`) : at(subject.session, `/sources/${subject.side}/tensors/${subject.tensor}${rest}`);
}

/** How it is looked at, besides the slice. */
export interface Look {
  original: boolean;
  cause: number | null;
  /** The candidate's own slice, when the sides are looked at independently. */
  other: Slice | null;
}

/** The slice and the look as the query of a request. Ranges are those of the slice unless `view` gives others. */
export function lookQuery(slice: Slice, look: Look, view: Viewport | null = null): URLSearchParams {
  const query = new URLSearchParams();
  const range = view ?? { r0: slice.row, r1: slice.row + slice.rowCount, c0: slice.col, c1: slice.col + slice.colCount };
  if (slice.mode === "flat" || slice.cols === null) query.set("flat", "1");
  else {
    if (slice.rows !== null) query.set("rows", String(slice.rows));
    query.set("cols", String(slice.cols));
    query.set("at", slice.at.join(","));
  }
  if (slice.rows !== null && slice.mode === "2d") {
    query.set("r0", String(range.r0));
    query.set("r1", String(range.r1));
  }
  query.set("c0", String(range.c0));
  query.set("c1", String(range.c1));
  if (look.original) query.set("original", "1");
  if (look.cause !== null) query.set("cause", String(look.cause));
  return query;
}

function otherQuery(query: URLSearchParams, slice: Slice) {
  if (slice.mode === "flat") {
    query.set("other_c0", String(slice.col));
    return;
  }
  if (slice.rows !== null) {
    query.set("other_rows", String(slice.rows));
    query.set("other_r0", String(slice.row));
  }
  if (slice.cols !== null) query.set("other_cols", String(slice.cols));
  query.set("other_at", slice.at.join(","));
  query.set("other_c0", String(slice.col));
}

export async function cells(subject: Subject, slice: Slice, look: Look, signal: AbortSignal): Promise<Block> {
  const query = lookQuery(slice, look);
  query.set("bits", "1");
  if (look.other) otherQuery(query, look.other);
  const doc = await json<Schemas["CellsDoc"]>(`${subjectPath(subject, "/cells")}?${query}`, signal);
  return blockOf(doc);
}

/** Only one side's values: where the two have no common shape. */
export async function cellsOf(subject: Subject, side: Side, slice: Slice, look: Look, signal: AbortSignal): Promise<Block> {
  const query = lookQuery(slice, look);
  query.set("bits", "1");
  query.set("planes", side);
  return blockOf(await json<Schemas["CellsDoc"]>(`${subjectPath(subject, "/cells")}?${query}`, signal));
}

function blockOf(doc: Schemas["CellsDoc"]): Block {
  const texts = doc.reference ?? doc.candidate ?? [];
  const cells = texts.map((text, nth): Cell => ({
    reference: doc.reference?.[nth] ?? text,
    candidate: doc.candidate?.[nth] ?? null,
    difference: doc.difference?.[nth] ?? null,
    relative: doc.relative?.[nth] ?? null,
    ulp: doc.ulp?.[nth] ?? null,
    bits: [doc.reference_bits?.[nth] ?? null, doc.candidate_bits?.[nth] ?? null],
  }));
  return { rows: doc.rows, cols: doc.cols, cells };
}

export interface WindowAnswer {
  width: number;
  height: number;
  exact: boolean;
  /** Values that were read, of each side. */
  read: number;
  planes: Partial<Record<Plane, Float32Array>>;
}

export async function window(subject: Subject, slice: Slice, look: Look, view: Viewport, size: { width: number; height: number }, planes: readonly Plane[], signal: AbortSignal): Promise<WindowAnswer> {
  const query = lookQuery(slice, look, view);
  query.set("width", String(size.width));
  query.set("height", String(size.height));
  query.set("planes", planes.join(","));
  const response = await ask(`${subjectPath(subject, "/window")}?${query}`, { signal });
  const meta = JSON.parse(response.headers.get("x-tensor-meta") ?? "{}") as Schemas["WindowMeta"];
  const values = new Float32Array(await response.arrayBuffer());
  const each = meta.width * meta.height;
  const answer: WindowAnswer = { width: meta.width, height: meta.height, exact: meta.exact, read: meta.read, planes: {} };
  for (const [nth, plane] of meta.planes.entries()) {
    const name = PLANES.find((known) => known === plane.plane);
    if (name) answer.planes[name] = values.subarray(nth * each, (nth + 1) * each);
  }
  return answer;
}

/** What a regex alone would pair. Nothing is saved. */
export function preview(id: string, settings: Settings, pattern: Pattern, signal: AbortSignal): Promise<Schemas["PreviewDoc"]> {
  const patterns = [{ reference: pattern.reference, ...(pattern.candidate ? { candidate: pattern.candidate } : {}) }];
  return send("POST", at(id, "/preview"), { settings: { ...settings, rules: ["pattern"], patterns, map: [] } }, signal);
}

/** What is searched for, and what to say when there is none. */
export interface Wanted {
  what: "difference" | "nonfinite" | "nan" | "value" | "range";
  on: Plane | null;
  value?: string;
  low?: number;
  high?: number;
  said: string;
}

/** `0.5`, `NaN`, `0.5..2`, `>3`, `<-1`; or why it is none of them. */
export function parseWanted(text: string, on: Plane): Wanted | string {
  const clean = text.trim().replaceAll("−", "-");
  const said = `No value of the ${on} is ${clean}`;
  const number = (part: string) => (part.trim() === "" ? NaN : Number(part.replace(/^(-?)inf(inity)?$/i, "$1Infinity")));
  if (/^nan$/i.test(clean)) return { what: "nan", on, said };
  const range = /^(.+?)\s*(?:\.\.|…| to )\s*(.+)$/.exec(clean);
  if (range) {
    const [low, high] = [number(range[1] ?? ""), number(range[2] ?? "")];
    return Number.isNaN(low) || Number.isNaN(high) || low > high ? `“${text}” is no range; write it like 0.5..2` : { what: "range", on, low, high, said };
  }
  const beyond = /^([<>])=?\s*(.+)$/.exec(clean);
  if (beyond) {
    const limit = number(beyond[2] ?? "");
    if (Number.isNaN(limit)) return `“${beyond[2]}” is not a number`;
    return beyond[1] === "<" ? { what: "range", on, high: limit, said } : { what: "range", on, low: limit, said };
  }
  return Number.isNaN(number(clean)) ? `“${text}” is not a number; write one, a range like 0.5..2, or NaN` : { what: "value", on, value: clean, said };
}

/** The next one in row-major order, around the end; null when there is none. Long searches go on piece by piece. */
export async function search(
  subject: Subject, wanted: Wanted, from: readonly number[] | null, backwards: boolean, look: Look, signal: AbortSignal, progress: (share: number) => void,
): Promise<{ index: number[]; around: boolean } | null> {
  const query = new URLSearchParams({ what: wanted.what, direction: backwards ? "previous" : "next" });
  if (wanted.on) query.set("on", wanted.on);
  if (wanted.value !== undefined) query.set("value", wanted.value);
  if (wanted.low !== undefined) query.set("low", String(wanted.low));
  if (wanted.high !== undefined) query.set("high", String(wanted.high));
  if (look.cause !== null) query.set("cause", String(look.cause));
  for (const around of [false, true]) {
    query.delete("go_on");
    if (from && !around) query.set("from", from.join(","));
    else query.delete("from");
    for (;;) {
      const found = await json<Schemas["FoundDoc"]>(`${subjectPath(subject, "/search")}?${query}`, signal);
      if (found.index) return { index: found.index, around };
      if (found.go_on === null) break;
      progress(backwards ? 1 - found.go_on / found.count : found.go_on / found.count);
      query.set("go_on", String(found.go_on));
    }
    if (from === null) return null;
  }
  return null;
}

export function histogram(subject: Subject, look: Look, signal: AbortSignal): Promise<Schemas["HistogramsDoc"]> {
  const query = new URLSearchParams({ bins: "64" });
  if (look.cause !== null) query.set("cause", String(look.cause));
  return json(`${subjectPath(subject, "/histogram")}?${query}`, signal);
}

export function profile(subject: Subject, look: Look, signal: AbortSignal): Promise<Schemas["ProfilesDoc"]> {
  return json(`${subjectPath(subject, "/profile")}${look.cause === null ? "" : `?cause=${look.cause}`}`, signal);
}

export const stats = (id: string, side: Side, from: number, count: number, signal: AbortSignal) =>
  json<Schemas["StatsDoc"][]>(at(id, `/sources/${side}/stats?from=${from}&count=${count}`), signal);

/** A slice, or all of it, as a file. */
export function exportLink(subject: Subject, kind: "npy" | "csv", side: Plane, slice: string | null, look: Look): string {
  const query = new URLSearchParams();
  if ("pair" in subject) query.set("side", side);
  if (slice !== null) query.set("slice", slice);
  if (look.original) query.set("original", "1");
  if (look.cause !== null) query.set("cause", String(look.cause));
  return `${subjectPath(subject, `/export.${kind}`)}?${query}`;
}
