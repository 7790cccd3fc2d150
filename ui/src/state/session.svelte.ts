// One session as the page knows it: pairs as they stream in, and everything a user changes about it.
import * as api from "../api/client.js";
import { events, type Heard } from "../api/events.js";
import { Problem } from "../api/problem.js";
import type { Schemas } from "../api/schemas.js";
import type { Leftover, PairRow } from "../logic/model.js";
import { leftovers, pairRow } from "../api/rows.js";
import { messages } from "./say.svelte.js";

export class SessionState {
  readonly id: string;
  doc = $state.raw<Schemas["SessionDoc"] | null>(null);
  pairs = $state.raw<PairRow[]>([]);
  leftovers = $state.raw<Leftover[]>([]);
  findings = $state.raw<Schemas["Finding"][]>([]);
  skipped = $state.raw<Schemas["Skipped"][]>([]);
  pinned = $state.raw<string[] | null>(null);
  first = $state<number | null>(null);
  verdict = $state<Schemas["Overall"] | null>(null);
  divergences = $state(0);
  partial = $state(false);
  /** The comparison after the last edit ended before its pairs were known: the result is that of an earlier revision. */
  outdated = $state(false);
  computedIn = $state<readonly (string | null)[]>([]);
  progress = $state.raw<Schemas["Progress"] | null>(null);
  state = $state<Schemas["State"]>("idle");
  problem = $state.raw<{ detail: string; hint?: string | null } | null>(null);
  /** Why the session cannot be shown at all. */
  missing = $state<string | null>(null);
  /** Counts what was loaded anew: views that show numbers look at it. */
  loads = $state(0);
  #revision = 0;
  #stop: (() => void) | null = null;
  #loading: Promise<void> | null = null;
  /** How often it was asked for, and how often this tab changed it. */
  #wanted = 0;
  #changes = 0;
  /** Rows that were told while something is being loaded: the answer may be older than they are. */
  #told: { revision: number; rows: readonly Schemas["Row"][] }[] = [];

  constructor(id: string) {
    this.id = id;
  }

  readOnly = $derived(this.doc?.mode === "imported");
  explores = $derived(this.doc?.mode === "explore");
  canUndo = $derived(Boolean(this.doc?.undo));
  canRedo = $derived(Boolean(this.doc?.redo));
  undoLabel = $derived(this.doc?.undo ?? null);
  redoLabel = $derived(this.doc?.redo ?? null);
  links = $derived.by(() => api.links(this.id));
  /** Each once, though both of its sides carry it. */
  suggestions = $derived(
    new Set(this.leftovers.filter(({ suggestion }) => suggestion !== null).map(({ side, name, suggestion }) => JSON.stringify(side === "reference" ? [name, suggestion] : [suggestion, name]))),
  );
  changed = $derived(
    [this.doc?.reference_source?.changed ? "reference" : null, this.doc?.candidate_source?.changed ? "candidate" : null].filter((side) => side !== null),
  );
  pairsInOrder = $derived.by(() => {
    if (!this.pinned) return this.pairs;
    const rank = new Map(this.pinned.map((key, at) => [key, at]));
    return this.pairs.toSorted((a, b) => (rank.get(a.key) ?? rank.size + a.order) - (rank.get(b.key) ?? rank.size + b.order));
  });

  orderedKeys(): string[] {
    return this.pairsInOrder.map((pair) => pair.key);
  }

  async start() {
    this.#stop = events.listen((heard) => this.#hear(heard));
    await this.load();
  }

  stop() {
    this.#stop?.();
    this.#stop = null;
  }

  /** Done when something is shown that was asked for after the call. One request at a time, so that no older answer comes after a newer. */
  load(): Promise<void> {
    this.#wanted += 1;
    this.#loading ??= this.#loadWanted().finally(() => (this.#loading = null));
    return this.#loading;
  }

  async #loadWanted() {
    let answered: number;
    do {
      answered = this.#wanted;
      await this.#loadOnce();
    } while (answered !== this.#wanted);
  }

  async #loadOnce() {
    const changes = this.#changes;
    this.#told = [];
    try {
      const doc = await api.session(this.id);
      // Before the first pairs are known there is nothing to ask for; they come as events.
      const paired = doc.headline !== null || (doc.state === "running" && doc.progress.pairs_total > 0);
      const found = paired ? await api.pairs(this.id) : null;
      // What was asked for before a change of this tab tells of the past; the change asks again.
      if (changes !== this.#changes) return;
      this.#take(doc);
      if (found) this.#takePairs(found);
      this.outdated = found !== null && found.revision < doc.revision && (doc.state === "cancelled" || doc.state === "interrupted");
      if (doc.state === "running") {
        for (const { revision, rows } of this.#told) if (revision >= this.#revision) this.#merge(revision, rows);
        this.#soFar(doc.revision);
      }
      // The server ended in the middle: what had been told of pairs went with it.
      else if (doc.state === "interrupted") [this.pairs, this.leftovers] = [[], []];
      this.missing = null;
      void this.#describeLeftovers();
    } catch (error) {
      if (error instanceof Problem && error.status === 409) return;
      // What is shown stays when the server is away for a while; it is asked again once it is heard of.
      if (this.doc !== null && !(error instanceof Problem && error.status === 404)) messages.fail(error);
      else this.missing = error instanceof Error ? error.message : String(error);
    }
  }

  #take(doc: Schemas["SessionDoc"]) {
    this.doc = doc;
    this.state = doc.state;
    this.progress = doc.progress;
    this.problem = doc.problem;
    this.#headline(doc.headline);
  }

  #headline(headline: Schemas["Headline"] | null) {
    this.verdict = headline?.verdict ?? null;
    this.first = headline?.first_divergence?.pair ?? null;
    this.divergences = headline?.divergences ?? 0;
    this.partial = headline?.partial ?? false;
    this.computedIn = headline?.computed_in ?? [];
  }

  #takePairs(found: Schemas["PairsDoc"]) {
    this.#revision = found.revision;
    const rows = found.pairs.map(pairRow);
    this.pinned = found.pinned ? rows.map((row) => row.key) : null;
    this.pairs = rows.sort((a, b) => a.id - b.id);
    this.leftovers = [...leftovers("reference", found.only_reference), ...leftovers("candidate", found.only_candidate)];
    this.findings = found.findings;
    this.skipped = found.skipped;
    this.#headline(found.headline);
    this.loads += 1;
  }

  /** What shape those without a partner have: that is what tells which could be one. */
  async #describeLeftovers() {
    if (this.leftovers.length === 0 || this.readOnly) return;
    const loads = this.loads;
    try {
      const sides = (["reference", "candidate"] as const).filter((side) => this.leftovers.some((leftover) => leftover.side === side));
      const known = new Map<string, { shape: number[]; dtype: string }>();
      for (const side of sides) for (const { name, shape, dtype } of (await api.tensors(this.id, side)).tensors) known.set(`${side}:${name}`, { shape, dtype });
      if (loads === this.loads) this.leftovers = this.leftovers.map((leftover) => ({ ...leftover, ...known.get(`${leftover.side}:${leftover.name}`) }));
    } catch {
      // They are listed without: the source may be gone, which is said elsewhere.
    }
  }

  #hear(heard: Heard) {
    if (heard.kind === "lost") return;
    if (heard.kind === "snapshot") {
      // The stream began anew: whatever was told in between was not heard.
      if (heard.sessions.some((session) => session.session === this.id)) void this.load();
      return;
    }
    const { event } = heard;
    if (event.session !== this.id) return;
    switch (event.kind) {
      case "progress":
        this.progress = event;
        return;
      case "pairs":
        if (this.#loading) this.#told.push(event);
        this.#merge(event.revision, event.rows);
        this.#soFar(event.revision);
        return;
      case "state":
        this.state = event.state;
        this.problem = event.problem;
        if (event.state !== "queued") void this.load();
        return;
      case "changed":
        void this.load();
        return;
      case "deleted":
        this.missing = "this session was deleted in another tab";
    }
  }

  /** Rows that are new or changed; those of another pairing start from nothing. */
  #merge(revision: number, rows: readonly Schemas["Row"][]) {
    const known = new Map((revision === this.#revision ? this.pairs : []).map((pair) => [pair.id, pair]));
    this.#revision = revision;
    for (const row of rows) known.set(row.pair, pairRow(row));
    this.pairs = [...known.values()].sort((a, b) => a.id - b.id);
  }

  /** The headline of a comparison that goes on is what its pairs say: its own comes at the end. */
  #soFar(revision: number) {
    if (this.state !== "running" || revision !== this.#revision) return;
    this.first = this.pairs.find((pair) => pair.verdict === "diverged" && pair.origin === "own")?.id ?? null;
    if (this.first !== null) this.verdict = "diverged";
  }

  /** Carries something out; what goes wrong is said. */
  async #do(work: () => Promise<Schemas["SessionDoc"] | void>): Promise<boolean> {
    try {
      const doc = await work();
      this.#changes += 1;
      if (doc) this.#take(doc);
      await this.load();
      return true;
    } catch (error) {
      messages.fail(error);
      return false;
    }
  }

  async #edit(edit: api.Edit, said: string | null = null): Promise<boolean> {
    const done = await this.#do(() => api.edit(this.id, edit));
    if (done && said !== null) messages.say(said, { label: "Undo", run: () => void this.undo() });
    return done;
  }

  undo = () => this.#do(() => api.undo(this.id));
  redo = () => this.#do(() => api.redo(this.id));
  cancel = () => this.#do(() => api.cancel(this.id));
  rerun = () => this.#do(() => api.compare(this.id));
  rename = (name: string) => this.#do(() => api.change(this.id, { name }));
  note = (notes: string) => this.#do(() => api.change(this.id, { notes }));
  pin = (keys: readonly string[] | null) => this.#edit({ kind: "order", keys: keys === null ? null : [...keys] });
  pairUp = (reference: string, candidate: string) => this.#edit({ kind: "pair", reference: [reference], candidate: [candidate] }, `Paired ${reference} with ${candidate}`);
  unpair = (pair: PairRow) => this.#edit({ kind: "unpair", reference: pair.reference, candidate: pair.candidate }, `${pair.name} is no longer paired`);
  acceptAll = () => this.#edit({ kind: "accept_all", score: 0 }, "Suggestions accepted");
  layout = (pair: PairRow, steps: string | null) => this.#edit({ kind: "layout", name: pair.name, steps }, `Layout of ${pair.name} changed`);
  applySettings = (settings: api.Settings) => this.#edit({ kind: "settings", settings }, "Settings changed");
  loadFile = (kind: "pairing" | "settings", text: string) =>
    this.#edit(kind === "pairing" ? { kind: "import_map", text } : { kind: "import_settings", text }, kind === "pairing" ? "Pairing loaded" : "Settings loaded");

  settings = () => api.settings(this.id);
  preview = (settings: api.Settings, pattern: api.Pattern, signal: AbortSignal) => api.preview(this.id, settings, pattern, signal);
  detail = (pair: number, signal?: AbortSignal) => api.pair(this.id, pair, signal);
}
