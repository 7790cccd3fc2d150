// Values -> pixels, by a table of colours: the inner loop of every painter. Pure: no DOM, no fetch.
import { scaled, STEPS, type Scale } from "./colour.js";

/** One pixel per value. What is not finite has its own colour and is never put on the scale. */
export function pixels(values: Float32Array, scale: Scale, table: Uint32Array, out: Uint32Array): void {
  const half = (STEPS - 1) / 2;
  const linear = scale.kind === "linear" && scale.limit > 0;
  const factor = linear ? half / scale.limit : 0;
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at] as number;
    let place: number;
    if (value !== value) place = STEPS;
    else if (value === Infinity) place = STEPS + 1;
    else if (value === -Infinity) place = STEPS + 2;
    else if (linear) place = Math.max(0, Math.min(STEPS - 1, Math.round(value * factor + half)));
    else place = Math.round((scaled(value, scale) + 1) * half);
    out[at] = table[place] as number;
  }
}

export interface Extent {
  /** The largest finite magnitude. */
  limit: number;
  nan: number;
  inf: number;
}

export function extent(values: Float32Array): Extent {
  const result = { limit: 0, nan: 0, inf: 0 };
  for (const value of values) {
    if (Number.isFinite(value)) result.limit = Math.max(result.limit, Math.abs(value));
    else if (Number.isNaN(value)) result.nan += 1;
    else result.inf += 1;
  }
  return result;
}

/** The magnitude below which a share of the finite values lies: a colour range that one outlier does not blind. */
export function clipped(values: Float32Array, share = 0.99): number {
  const sizes = values.filter((value) => Number.isFinite(value)).map((value) => Math.abs(value)).sort();
  if (sizes.length === 0) return 0;
  return sizes[Math.min(sizes.length - 1, Math.ceil(share * sizes.length) - 1)] ?? 0;
}
