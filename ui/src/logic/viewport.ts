// The part of a matrix that a heatmap shows, and how it moves. Pure: no DOM, no fetch.
import { counted, percent } from "./numbers.js";

export interface Viewport {
  /** First row and the one after the last; the same for columns. */
  r0: number;
  r1: number;
  c0: number;
  c1: number;
}

export function whole(rows: number, cols: number): Viewport {
  return { r0: 0, r1: rows, c0: 0, c1: cols };
}

/** Fewer cells than this are never shown: closer makes nothing clearer. */
const LEAST = 4;

/** `factor` below 1 comes closer. The cell under the cursor (row, col, fractions allowed) stays under the cursor. */
export function zoom(view: Viewport, row: number, col: number, factor: number, rows: number, cols: number): Viewport {
  const [r0, r1] = along(view.r0, view.r1, row, factor, rows);
  const [c0, c1] = along(view.c0, view.c1, col, factor, cols);
  return { r0, r1, c0, c1 };
}

function along(low: number, high: number, at: number, factor: number, size: number): [number, number] {
  const span = high - low;
  let wanted = Math.round(span * factor);
  if (wanted === span) wanted += factor < 1 ? -1 : 1;
  wanted = Math.max(Math.min(LEAST, size), Math.min(size, wanted));
  const share = span === 0 ? 0 : (at - low) / span;
  return clamp(Math.round(at - share * wanted), wanted, size);
}

function clamp(low: number, span: number, size: number): [number, number] {
  const start = Math.max(0, Math.min(size - span, low));
  return [start, start + span];
}

export function pan(view: Viewport, down: number, right: number, rows: number, cols: number): Viewport {
  const [r0, r1] = clamp(Math.round(view.r0 + down), view.r1 - view.r0, rows);
  const [c0, c1] = clamp(Math.round(view.c0 + right), view.c1 - view.c0, cols);
  return { r0, r1, c0, c1 };
}

/** Shows the cell in the middle, as near as the ends allow, close enough to read it. */
export function around(row: number, col: number, rows: number, cols: number, span = 16): Viewport {
  const height = Math.min(rows, span);
  const width = Math.min(cols, span);
  const [r0, r1] = clamp(row - Math.floor(height / 2), height, rows);
  const [c0, c1] = clamp(col - Math.floor(width / 2), width, cols);
  return { r0, r1, c0, c1 };
}

export function contains(view: Viewport, row: number, col: number): boolean {
  return row >= view.r0 && row < view.r1 && col >= view.c0 && col < view.c1;
}

/** How many pooled values to ask for: one per screen pixel at most, one per cell when there are fewer. */
export function resolution(view: Viewport, width: number, height: number): { width: number; height: number } {
  const fit = (span: number, pixels: number) => Math.max(1, Math.min(span, Math.floor(pixels)));
  return { width: fit(view.c1 - view.c0, width), height: fit(view.r1 - view.r0, height) };
}

/** The size of the picture in pixels: cells are square unless the matrix is so long that it would be a line. */
export function pictureSize(view: Viewport, width: number, height: number): { width: number; height: number } {
  const rows = Math.max(1, view.r1 - view.r0);
  const cols = Math.max(1, view.c1 - view.c0);
  const cell = Math.min(width / cols, height / rows);
  const fit = (pixels: number, most: number) => Math.round(Math.max(Math.min(most, 64), Math.min(most, pixels)));
  return { width: fit(cell * cols, width), height: fit(cell * rows, height) };
}

/** What a pixel of the picture stands for; that it is a sample when not every value was read, and of how many. */
export function poolingText(view: Viewport, data: { width: number; height: number; exact: boolean; read: number }): string {
  const [rows, cols] = [view.r1 - view.r0, view.c1 - view.c0];
  const [tall, wide] = [rows / data.height, cols / data.width];
  if (tall <= 1 && wide <= 1) return "every value is a cell";
  const fine = (size: number) => (Number.isInteger(size) ? String(size) : size.toFixed(1));
  const block = `${fine(tall)} × ${fine(wide)} abs-max pooling`;
  if (data.exact) return `${block}: each pixel is the largest of its block, NaN and infinities first`;
  const each = Math.max(1, Math.round(data.read / (data.width * data.height)));
  return `${block} of a sample: each pixel is the largest of ${counted(each, "value")} read of its block (${percent(data.read, rows * cols)} of all), NaN and infinities first`;
}
