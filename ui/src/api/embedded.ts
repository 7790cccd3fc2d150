// A report in one file: the same page, answering from the JSON beside it instead of a server.
import { numeric } from "../logic/numbers.js";
import type { Schemas } from "./schemas.js";

type Report = Schemas["Report"];

function read(): Report | null {
  const element = document.getElementById("twinscope-report");
  return element?.textContent ? (JSON.parse(element.textContent) as Report) : null;
}

export const embedded: Report | null = read();

const names = (names: Schemas["Names"]): string[] => (typeof names === "string" ? [names] : names);

/** As the server says it of its rows. */
function unequalNonfinite(totals: Schemas["Totals"] | null): boolean {
  if (!totals || totals.differing === 0) return false;
  return (totals.worst ?? []).some((value) => !Number.isFinite(numeric(value))) || (numeric(totals.max_abs) ?? 0) === 0;
}

function row(pair: Schemas["Pair"], nth: number): Schemas["Row"] {
  const { totals } = pair;
  const [cause] = pair.causes;
  return {
    pair: nth,
    key: `${names(pair.reference).join(" + ")} = ${names(pair.candidate).join(" + ")}`,
    name: pair.name,
    reference: names(pair.reference),
    candidate: names(pair.candidate),
    order: pair.order,
    rule: pair.rule,
    score: pair.score,
    shape: pair.shape,
    dtypes: pair.dtypes,
    bytes: null,
    verdict: pair.verdict,
    agrees_at: pair.agrees_at,
    origin: pair.origin,
    max_abs: totals?.max_abs ?? null,
    rel_l2: totals?.rel_l2 ?? null,
    cosine: totals?.cosine ?? null,
    max_ulp: totals?.max_ulp ?? null,
    differing: totals?.differing ?? null,
    nonfinite: totals ? totals.reference.nan + totals.reference.inf + totals.candidate.nan + totals.candidate.inf : null,
    unequal_nonfinite: unequalNonfinite(totals),
    cause: cause?.kind ?? null,
    cause_text: cause?.text ?? null,
    reason: pair.reason,
    rearranged: (pair.layout?.steps.length ?? 0) > 0,
  };
}

function headline(report: Report): Schemas["Headline"] {
  const count = (verdict: Schemas["Verdict"]) => report.pairs.filter((pair) => pair.verdict === verdict).length;
  const first = report.first_divergence;
  return {
    verdict: report.verdict,
    partial: report.partial,
    first_divergence: first,
    cause: first ? (report.pairs[first.pair]?.causes[0] ?? null) : null,
    divergences: report.divergences.length,
    computed_in: report.computed_in,
    pairs: report.pairs.length,
    counts: {
      identical: count("identical"),
      rounding: count("rounding"),
      harmless: count("harmless"),
      diverged: count("diverged"),
      incomparable: count("incomparable"),
      only_reference: report.only_reference.length,
      only_candidate: report.only_candidate.length,
      skipped: report.skipped.length,
      findings: report.findings.length,
    },
  };
}

export function sessionDoc(report: Report): Schemas["SessionDoc"] {
  return {
    session: "report",
    name: `${report.reference} / ${report.candidate}`,
    notes: "",
    created: 0,
    updated: 0,
    reference: report.reference,
    candidate: report.candidate,
    state: "done",
    headline: headline(report),
    upload_bytes: 0,
    imported: true,
    progress: { phase: "measuring", pairs: 0, pairs_total: 0, bytes: 0, bytes_total: 0, bytes_per_second: null, seconds_left: null },
    revision: 1,
    problem: null,
    mode: "imported",
    reference_source: null,
    candidate_source: null,
    pinned: false,
    undo: null,
    redo: null,
    settings: {},
    command: null,
  };
}

export function pairsDoc(report: Report): Schemas["PairsDoc"] {
  return {
    revision: 1,
    provisional: false,
    pinned: false,
    headline: headline(report),
    pairs: report.pairs.map(row),
    only_reference: report.only_reference,
    only_candidate: report.only_candidate,
    skipped: report.skipped,
    findings: report.findings,
    left_out: report.left_out,
  };
}

export function pairDoc(report: Report, nth: number): Schemas["PairDoc"] {
  const pair = report.pairs[nth];
  if (!pair) throw new Error("there is no such pair in this report");
  return { ...pair, revision: 1, key: row(pair, nth).key, reference_tensors: [], candidate_tensors: [], layout_override: null, dims: null };
}
