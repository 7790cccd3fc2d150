// Finding a command or a tensor by a few letters in order. Pure: no DOM, no fetch.

export interface Scored<T> {
  item: T;
  score: number;
}

/** How well the letters fit the text; null when they do not. Whole words, starts of words and neighbouring letters count more. */
export function score(query: string, text: string): number | null {
  const wanted = query.toLowerCase().replace(/\s+/g, "");
  if (wanted === "") return 0;
  const lower = text.toLowerCase();
  const whole = lower.indexOf(query.trim().toLowerCase());
  let total = whole >= 0 ? 20 + (startsWord(text, whole) ? 10 : 0) : 0;
  let from = 0;
  let last = -2;
  for (const letter of wanted) {
    const at = lower.indexOf(letter, from);
    if (at < 0) return null;
    total += at === last + 1 ? 3 : startsWord(text, at) ? 2 : 0;
    last = at;
    from = at + 1;
  }
  return total - text.length / 200;
}

function startsWord(text: string, at: number): boolean {
  return at === 0 || /[^a-z0-9]/i.test(text[at - 1] ?? "");
}

/** The best ones first; equal ones keep their order. */
export function best<T>(query: string, items: readonly T[], text: (item: T) => string, most = 50): T[] {
  const found: Scored<T>[] = [];
  for (const item of items) {
    const value = score(query, text(item));
    if (value !== null) found.push({ item, score: value });
  }
  return found.sort((a, b) => b.score - a.score).slice(0, most).map(({ item }) => item);
}
