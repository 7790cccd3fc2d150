// Numbers -> colours. Blue is negative, orange positive, in both themes and for eyes that do not tell red from green; what is not finite
// has colours of its own. Pure: no DOM, no fetch.

export type Theme = "light" | "dark";
export type Rgb = readonly [number, number, number];

const DIVERGING: Record<Theme, readonly Rgb[]> = {
  light: [[22, 84, 160], [104, 165, 214], [247, 247, 245], [244, 172, 94], [184, 84, 8]],
  dark: [[146, 200, 250], [44, 104, 168], [27, 29, 34], [166, 92, 24], [255, 186, 112]],
};

/** Not-finite values: never on the scale. */
export const NOT_FINITE: Record<Theme, { nan: Rgb; plus: Rgb; minus: Rgb }> = {
  light: { nan: [214, 0, 147], plus: [255, 214, 0], minus: [0, 190, 200] },
  dark: { nan: [255, 92, 200], plus: [255, 222, 60], minus: [70, 224, 232] },
};

export function mix(a: Rgb, b: Rgb, share: number): Rgb {
  const at = (channel: 0 | 1 | 2) => Math.round(a[channel] + (b[channel] - a[channel]) * share);
  return [at(0), at(1), at(2)];
}

/** The colour of -1 to 1. */
export function diverging(value: number, theme: Theme): Rgb {
  const stops = DIVERGING[theme];
  const place = ((Math.max(-1, Math.min(1, value)) + 1) / 2) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(place));
  return mix(stops[low] as Rgb, stops[low + 1] as Rgb, place - low);
}

export type ScaleKind = "linear" | "symlog";
export interface Scale {
  kind: ScaleKind;
  /** The value that is shown at full strength, as a magnitude. */
  limit: number;
}

/** -1 to 1; a symmetric logarithm keeps four decades below the limit apart. */
export function scaled(value: number, { kind, limit }: Scale): number {
  if (limit <= 0 || value === 0) return value === 0 ? 0 : Math.sign(value);
  const share = value / limit;
  if (kind === "linear") return Math.max(-1, Math.min(1, share));
  const size = Math.min(1, Math.log1p(1e4 * Math.abs(share)) / Math.log1p(1e4));
  return Math.sign(share) * size;
}

export function css([r, g, b]: Rgb): string {
  return `rgb(${r} ${g} ${b})`;
}

const INK: Record<Theme, Rgb> = { light: [24, 26, 31], dark: [236, 238, 242] };
const PAPER: Record<Theme, Rgb> = { light: [255, 255, 255], dark: [24, 26, 30] };

/** A cell's background: a tint, so that its number stays readable. */
export function cellBackground(value: number, scale: Scale, theme: Theme): Rgb {
  const { nan, plus, minus } = NOT_FINITE[theme];
  if (Number.isNaN(value)) return mix(PAPER[theme], nan, 0.4);
  if (!Number.isFinite(value)) return mix(PAPER[theme], value > 0 ? plus : minus, 0.4);
  const at = scaled(value, scale);
  const full = diverging(Math.sign(at) * 0.5, theme);
  return mix(PAPER[theme], full, Math.abs(at) * (theme === "light" ? 0.85 : 0.9));
}

/** A cell's border: green and thin where the sides hardly differ, orange and thick where they differ most; none where they are equal. */
export function cellBorder(difference: number, limit: number, theme: Theme): { colour: Rgb; width: number } | null {
  if (difference === 0) return null;
  const low: Rgb = theme === "light" ? [126, 190, 140] : [70, 140, 92];
  const high: Rgb = theme === "light" ? [200, 74, 0] : [255, 150, 60];
  const share = Number.isFinite(difference) ? Math.abs(scaled(difference, { kind: "symlog", limit })) : 1;
  return { colour: mix(low, high, share), width: 1 + Math.round(share * 2) };
}

function luminance([r, g, b]: Rgb): number {
  const linear = (channel: number) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
}

/** WCAG's contrast of two colours, 1 to 21. */
export function contrast(a: Rgb, b: Rgb): number {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

/** Ink or paper, whichever is easier to read on it. */
export function inkOn(background: Rgb, theme: Theme): Rgb {
  const paper = PAPER[theme];
  return contrast(INK[theme], background) >= contrast(paper, background) ? INK[theme] : paper;
}

/** 511 packed colours from -1 to 1, then NaN, +inf, -inf: what a painter looks up per pixel (little-endian RGBA). */
export function table(theme: Theme): Uint32Array {
  const packed = new Uint32Array(STEPS + 3);
  for (let at = 0; at < STEPS; at += 1) packed[at] = pack(diverging((2 * at) / (STEPS - 1) - 1, theme));
  const { nan, plus, minus } = NOT_FINITE[theme];
  packed.set([pack(nan), pack(plus), pack(minus)], STEPS);
  return packed;
}

export const STEPS = 511;

export function pack([r, g, b]: Rgb): number {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
