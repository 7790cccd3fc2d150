// Moving one thing within a list. Pure: no DOM, no fetch.

/** `item` taken out and put in before what now stands at `to` (as `dropIndex` counts); the same list when nothing moves. */
export function move<T>(items: readonly T[], from: number, to: number): readonly T[] {
  if (from < 0 || from >= items.length) return items;
  const target = Math.max(0, Math.min(items.length, to));
  if (target === from || target === from + 1) return items;
  const rest = items.toSpliced(from, 1);
  const [item] = items.slice(from, from + 1);
  return rest.toSpliced(target > from ? target - 1 : target, 0, item as T);
}

/** Within one list, the moved one lands before `before`, or last when that is null. */
export function moveBefore<T>(ids: readonly T[], moved: T, before: T | null): readonly T[] {
  const to = before === null ? ids.length : ids.indexOf(before);
  return to < 0 ? ids : move(ids, ids.indexOf(moved), to);
}
