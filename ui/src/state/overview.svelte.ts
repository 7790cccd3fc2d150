// How the overview of one session is being looked at: kept while other screens are shown, so that coming back changes nothing.
import { groups, neighbourBad, openAtFirst, rows, type Group, type Grouping, type Sorting } from "../logic/arrange.js";
import { matcher } from "../logic/filter.js";
import type { PairRow, Verdict } from "../logic/model.js";
import { sharedPrefix } from "../logic/names.js";
import type { SessionState } from "./session.svelte.js";

export class OverviewState {
  grouping = $state<Grouping>("layer");
  sorting = $state<Sorting>("execution");
  text = $state("");
  show = $state.raw<ReadonlySet<Verdict | "leftover">>(new Set());
  selected = $state<string | null>(null);
  /** How far the list is scrolled, and whether someone has done anything in it: until then it shows the first divergence. */
  scrolled = 0;
  touched = false;
  /** Groups that were opened or closed by hand, by grouping and key. */
  #hand = $state.raw<ReadonlyMap<string, boolean>>(new Map());

  readonly session: SessionState;
  constructor(session: SessionState) {
    this.session = session;
  }

  matcher = $derived(matcher({ show: this.show, text: this.text }));
  groups = $derived.by(() => {
    const { pairs, leftovers, pinned } = this.session;
    return groups(pairs, leftovers, this.matcher, { grouping: this.grouping, sorting: this.sorting, pinned });
  });
  rows = $derived.by(() => {
    const first = openAtFirst(this.groups, this.session.first);
    // A filter is a question: its answers are not hidden in closed groups.
    const asked = !this.matcher.all;
    return rows(this.groups, this.grouping, (group) => this.#hand.get(this.#key(group.key)) ?? (asked || first(group)));
  });
  prefix = $derived.by(() => sharedPrefix(this.session.pairs.map((pair) => pair.name)));
  shownPairs = $derived(this.groups.reduce((sum, group) => sum + group.pairs.length, 0));

  #key(group: string): string {
    return `${this.grouping}:${group}`;
  }

  toggle(group: string, open: boolean) {
    this.#hand = new Map(this.#hand).set(this.#key(group), open);
  }

  toggleAll(open: boolean) {
    const next = new Map(this.#hand);
    for (const group of this.groups) next.set(this.#key(group.key), open);
    this.#hand = next;
  }

  toggleVerdict(verdict: Verdict | "leftover") {
    const next = new Set(this.show);
    if (!next.delete(verdict)) next.add(verdict);
    this.show = next;
  }

  clear() {
    this.text = "";
    this.show = new Set();
  }

  /** The group that holds the pair is opened, so that there is a row to show. */
  reveal(pair: PairRow): string {
    const group = this.groups.find((group: Group) => group.pairs.some((each) => each.id === pair.id));
    if (group) this.toggle(group.key, true);
    this.selected = `p:${pair.key}`;
    return this.selected;
  }

  get selectedPair(): PairRow | null {
    const { selected } = this;
    return selected?.startsWith("p:") ? (this.session.pairs.find((pair) => `p:${pair.key}` === selected) ?? null) : null;
  }

  neighbour(step: 1 | -1, from: number | null): PairRow | null {
    return neighbourBad(this.groups, from, step);
  }
}
