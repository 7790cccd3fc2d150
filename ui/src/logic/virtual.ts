// Which rows of a long list are worth an element. Rows have one height, so this is arithmetic. Pure: no DOM, no fetch.

export interface Visible {
  /** First row to draw, and the one after the last. */
  first: number;
  end: number;
}

/** Never more than this, whatever height the list is given: a list without bounds would draw everything. */
export const MOST_ROWS = 90;

export function visible(scrollTop: number, height: number, rowHeight: number, total: number, extra = 6): Visible {
  const first = Math.max(0, Math.min(total, Math.floor(scrollTop / rowHeight)) - extra);
  const end = Math.min(total, Math.ceil((scrollTop + height) / rowHeight) + extra);
  return { first: Math.min(first, Math.max(0, total - 1)), end: Math.min(Math.max(end, first), first + MOST_ROWS) };
}

/** Where to scroll so that a row is seen, with some of its neighbours; unchanged when it already is. */
export function scrollTo(row: number, scrollTop: number, height: number, rowHeight: number, margin = 2): number {
  const top = (row - margin) * rowHeight;
  const bottom = (row + 1 + margin) * rowHeight;
  if (top < scrollTop) return Math.max(0, top);
  if (bottom > scrollTop + height) return Math.max(0, bottom - height);
  return scrollTop;
}

/** Between which rows a dragged one would land: 0 is before the first. */
export function dropIndex(scrollTop: number, y: number, rowHeight: number, total: number): number {
  return Math.max(0, Math.min(total, Math.round((scrollTop + y) / rowHeight)));
}
