// Which of the three ways to open fits what was given. Pure: no DOM, no fetch.

export type OpenMode = "compare" | "explore" | "mixed";
export const OPEN_MODES: readonly { mode: OpenMode; title: string; text: string }[] = [
  { mode: "compare", title: "Compare", text: "Two runs of the same network: where do they part, and why?" },
  { mode: "explore", title: "Explore one", text: "One source: all its tensors, or each of them against every other." },
  { mode: "mixed", title: "Mixed", text: "Any source against any other: an archive against a file, a file against a folder." },
];

export type SourceKind = "archive" | "folder" | "file";

export function kindOf(path: string, folder = false): SourceKind {
  if (folder || path.endsWith("/")) return "folder";
  return /\.(zip|tar|tgz|tar\.(gz|zst|bz2|xz))$/i.test(path) ? "archive" : "file";
}

/** The tab that fits: one source alone is explored, two of a kind are compared, anything else is mixed. */
export function modeFor(reference: SourceKind | null, candidate: SourceKind | null, chosen: OpenMode): OpenMode {
  if (reference === null && candidate === null) return chosen;
  if (reference === null || candidate === null) return chosen === "mixed" ? "mixed" : chosen === "explore" ? "explore" : "compare";
  const many = (kind: SourceKind) => kind !== "file";
  return reference === candidate || (many(reference) && many(candidate)) ? "compare" : "mixed";
}

export type Strategy = "auto" | "names" | "shapes" | "values";
export const STRATEGIES: Record<Strategy, { title: string; text: string; rules: readonly string[] | null }> = {
  auto: { title: "as found best", text: "layer and stage, names, patterns, then shapes and values", rules: null },
  names: { title: "by name", text: "exact names, then normalized and similar ones", rules: ["exact", "normalized", "fuzzy"] },
  shapes: { title: "by shape", text: "tensors whose shapes can be lined up, whatever they are called", rules: ["exact", "shape", "values"] },
  values: { title: "by value", text: "tensors that hold nearly the same numbers", rules: ["values", "shape"] },
};

/** What to try first: files of different kinds seldom share names. */
export function strategyFor(mode: OpenMode, reference: SourceKind | null, candidate: SourceKind | null): Strategy {
  return mode === "mixed" && reference !== null && candidate !== null && reference !== candidate ? "shapes" : "auto";
}
