// The divergence curve: how far apart each pair is, over the depth of the network. Pure: no DOM, no fetch.
import { distance } from "./arrange.js";
import type { PairRow } from "./model.js";

export interface Point {
  id: number;
  /** 0 at the bottom to 1 at the top; null when the pair was not measured. */
  height: number | null;
  /** NaN or infinite: above every number. */
  beyond: boolean;
}

export interface Curve {
  points: Point[];
  /** Powers of ten that are worth a line, with their heights. */
  ticks: { power: number; height: number }[];
}

/** Room at the bottom for pairs without any difference, and at the top for those that are not finite. */
const FLOOR = 0.14;
const CEILING = 0.9;

/** A logarithmic scale from the smallest to the largest difference there is, whole powers of ten, at least three of them. */
export function curve(pairs: readonly PairRow[]): Curve {
  const sizes = pairs.map(distance).filter((size) => size > 0 && Number.isFinite(size)).map(Math.log10);
  let low = Math.floor(minmax(sizes, -6)[0]);
  let high = Math.ceil(minmax(sizes, -3)[1]);
  while (high - low < 3) [low, high] = high < 0 ? [low, high + 1] : [low - 1, high];
  const place = (power: number) => FLOOR + ((power - low) / (high - low)) * (CEILING - FLOOR);
  const points = pairs.map((pair): Point => {
    const size = distance(pair);
    if (size < 0) return { id: pair.id, height: null, beyond: false };
    if (size === 0) return { id: pair.id, height: 0, beyond: false };
    if (!Number.isFinite(size)) return { id: pair.id, height: 1, beyond: true };
    return { id: pair.id, height: place(Math.log10(size)), beyond: false };
  });
  const step = Math.max(1, Math.ceil((high - low) / 5));
  const ticks = [];
  for (let power = low; power <= high; power += step) ticks.push({ power, height: place(power) });
  return { points, ticks };
}

/** Without spreading a long list over arguments: ten thousand of them would not fit. */
function minmax(sizes: readonly number[], instead: number): [number, number] {
  if (sizes.length === 0) return [instead, instead];
  let [low, high] = [Infinity, -Infinity];
  for (const size of sizes) {
    low = Math.min(low, size);
    high = Math.max(high, size);
  }
  return [low, high];
}
