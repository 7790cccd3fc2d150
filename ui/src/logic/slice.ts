// What the inspector shows of a tensor with any number of dimensions: which two are rows and columns, where the others stand, from where
// to where. Pure: no DOM, no fetch.

export type Mode = "1d" | "2d" | "flat";

export interface Slice {
  mode: Mode;
  /** The dimension along the rows; null in 1-D and flattened modes. */
  rows: number | null;
  /** The dimension along the columns (in 1-D: along the list); null for 0-D and flattened. */
  cols: number | null;
  /** Where every dimension stands; those of rows and columns are not looked at. */
  at: number[];
  /** From where, and how many. In 1-D and flattened modes `col*` counts along the list. */
  row: number;
  rowCount: number;
  col: number;
  colCount: number;
}

export const FIRST = 10;
export const MOST = 50;

/** The last two dimensions that have something to show as rows and columns, everything else at 0, the first ten of each. */
export function firstSlice(shape: readonly number[]): Slice {
  const at = shape.map(() => 0);
  const wide = shape.map((size, dim) => ({ size, dim })).filter(({ size }) => size > 1);
  const [cols, rows] = [wide.at(-1)?.dim ?? shape.length - 1, wide.at(-2)?.dim ?? null];
  if (shape.length === 0) return { mode: "flat", rows: null, cols: null, at, row: 0, rowCount: 1, col: 0, colCount: 1 };
  const colCount = Math.min(FIRST, shape[cols] ?? 1);
  if (rows === null) return { mode: "1d", rows: null, cols, at, row: 0, rowCount: 1, col: 0, colCount };
  return { mode: "2d", rows, cols, at, row: 0, rowCount: Math.min(FIRST, shape[rows] ?? 1), col: 0, colCount };
}

export function elements(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** How long the rows and the columns of this slice could be. */
export function extents(slice: Slice, shape: readonly number[]): { rows: number; cols: number } {
  if (slice.mode === "flat" || slice.cols === null) return { rows: 1, cols: elements(shape) };
  return { rows: slice.rows === null ? 1 : (shape[slice.rows] ?? 1), cols: shape[slice.cols] ?? 1 };
}

/** The same wishes for this shape: dimensions that exist, places inside of them. */
export function fitted(slice: Slice, shape: readonly number[]): Slice {
  if (shape.length === 0) return firstSlice(shape);
  const inside = (dim: number | null) => dim !== null && dim >= 0 && dim < shape.length;
  const base = firstSlice(shape);
  let { mode, rows, cols } = slice;
  if (mode === "2d" && shape.length < 2) mode = "1d";
  if (mode === "flat") [rows, cols] = [null, null];
  if (mode !== "flat" && !inside(cols)) cols = base.cols ?? shape.length - 1;
  if (mode === "1d") rows = null;
  if (mode === "2d" && (!inside(rows) || rows === cols)) rows = cols === base.rows ? base.cols : (base.rows ?? (cols === 0 ? 1 : 0));
  const at = shape.map((size, dim) => clamp(slice.at[dim] ?? 0, 0, Math.max(0, size - 1)));
  const size = extents({ ...slice, mode, rows, cols }, shape);
  const [row, rowCount] = span(slice.row, slice.rowCount, size.rows);
  const [col, colCount] = span(slice.col, slice.colCount, size.cols);
  return { mode, rows, cols, at, row, rowCount, col, colCount };
}

function clamp(value: number, low: number, high: number): number {
  return Number.isFinite(value) ? Math.max(low, Math.min(high, Math.trunc(value))) : low;
}

function span(start: number, count: number, size: number): [number, number] {
  const length = clamp(count, Math.min(1, size), Math.min(MOST, size));
  return [clamp(start, 0, Math.max(0, size - length)), length];
}

export function withMode(slice: Slice, mode: Mode, shape: readonly number[]): Slice {
  if (mode === slice.mode) return slice;
  const base = firstSlice(shape);
  const fresh = { ...slice, mode, row: 0, col: 0, rowCount: FIRST, colCount: FIRST };
  if (mode === "2d") return fitted({ ...fresh, cols: slice.cols ?? base.cols, rows: slice.rows ?? base.rows }, shape);
  return fitted({ ...fresh, cols: slice.cols ?? base.cols }, shape);
}

/** Gives a dimension the role of rows or columns; the one that had it takes the other's place. */
export function withAxis(slice: Slice, role: "rows" | "cols", dim: number, shape: readonly number[]): Slice {
  const other = role === "rows" ? "cols" : "rows";
  const next = { ...slice, [role]: dim, row: 0, col: 0, rowCount: FIRST, colCount: FIRST };
  if (slice[other] === dim) next[other] = slice[role];
  return fitted(next, shape);
}

/** The index of a cell in the whole tensor. */
export function indexOf(slice: Slice, row: number, col: number, shape: readonly number[]): number[] {
  if (slice.mode === "flat" || slice.cols === null) return unravel(col, shape);
  const index = [...slice.at];
  index[slice.cols] = col;
  if (slice.rows !== null) index[slice.rows] = row;
  return index;
}

/** Where that element is in the slice's rows and columns. */
export function placeOf(slice: Slice, index: readonly number[], shape: readonly number[]): { row: number; col: number } {
  if (slice.mode === "flat" || slice.cols === null) return { row: 0, col: ravel(index, shape) };
  return { row: slice.rows === null ? 0 : (index[slice.rows] ?? 0), col: index[slice.cols] ?? 0 };
}

/** Moves the slice so that the element is in it, as near the middle as the ends allow. */
export function moveTo(slice: Slice, index: readonly number[], shape: readonly number[]): Slice {
  const { row, col } = placeOf(slice, index, shape);
  const visible = slice.at.every((at, dim) => dim === slice.rows || dim === slice.cols || slice.mode === "flat" || at === index[dim]);
  const inRows = row >= slice.row && row < slice.row + slice.rowCount;
  const inCols = col >= slice.col && col < slice.col + slice.colCount;
  const next = { ...slice, at: shape.map((_, dim) => index[dim] ?? 0) };
  if (!visible || !inRows) next.row = row - Math.floor(slice.rowCount / 2);
  if (!visible || !inCols) next.col = col - Math.floor(slice.colCount / 2);
  return fitted(next, shape);
}

export function unravel(flat: number, shape: readonly number[]): number[] {
  let rest = flat;
  const index: number[] = new Array<number>(shape.length).fill(0);
  for (let dim = shape.length - 1; dim >= 0; dim -= 1) {
    const size = Math.max(1, shape[dim] ?? 1);
    index[dim] = rest % size;
    rest = Math.floor(rest / size);
  }
  return index;
}

export function ravel(index: readonly number[], shape: readonly number[]): number {
  return shape.reduce((flat, size, dim) => flat * size + (index[dim] ?? 0), 0);
}

/** `0, 17, -1` or `[0 17 2231]` as an index into the shape, or why it is none. One number may also be a flat index. */
export function parseIndex(text: string, shape: readonly number[]): number[] | string {
  const parts = text.replace(/[[\]()]/g, " ").split(/[\s,;]+/).filter((part) => part !== "");
  if (parts.some((part) => !/^[-−]?\d+$/.test(part))) return "an index is whole numbers, like 0, 17, 2231";
  const numbers = parts.map((part) => Number(part.replace("−", "-")));
  if (numbers.length === 1 && shape.length !== 1) {
    const flat = numbers[0] ?? 0;
    const total = elements(shape);
    return flat >= 0 && flat < total ? unravel(flat, shape) : `there are ${total} values`;
  }
  if (numbers.length !== shape.length) return `this tensor has ${shape.length} dimensions, not ${numbers.length}`;
  const index = numbers.map((at, dim) => (at < 0 ? at + (shape[dim] ?? 0) : at));
  const beyond = index.findIndex((at, dim) => at < 0 || at >= (shape[dim] ?? 0));
  return beyond < 0 ? index : `dim ${beyond} goes from 0 to ${(shape[beyond] ?? 0) - 1}`;
}

/** NumPy's way of writing the slice: `[0, 3:13, 5:15]`. Flattened: `[3:13]` of `.reshape(-1)`. */
export function numpySlice(slice: Slice, shape: readonly number[]): string {
  const range = (start: number, count: number) => `${start}:${start + count}`;
  if (shape.length === 0) return "[()]";
  if (slice.mode === "flat" || slice.cols === null) return `[${range(slice.col, slice.colCount)}]`;
  const parts = shape.map((_, dim) => {
    if (dim === slice.cols) return range(slice.col, slice.colCount);
    if (dim === slice.rows) return range(slice.row, slice.rowCount);
    return String(slice.at[dim] ?? 0);
  });
  return `[${parts.join(", ")}]`;
}

/** Names of dimensions that are well known, by how many there are; a guess that helps, so it is only ever shown beside the number. */
export function dimName(dim: number, rank: number): string {
  return `dim ${dim}${rank > 1 && dim === rank - 1 ? " (last)" : ""}`;
}
