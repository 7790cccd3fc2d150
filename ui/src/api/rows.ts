// The API's rows as the page's.
import type { Leftover, PairRow, Side } from "../logic/model.js";
import { elements } from "../logic/slice.js";
import type { Schemas } from "./schemas.js";

export function pairRow(row: Schemas["Row"]): PairRow {
  return {
    id: row.pair,
    key: row.key,
    name: row.name,
    reference: row.reference,
    candidate: row.candidate,
    order: row.order,
    rule: row.rule,
    score: row.score,
    verdict: row.verdict,
    origin: row.origin,
    agrees_at: row.agrees_at,
    reason: row.reason,
    shape: row.shape,
    dtypes: [row.dtypes[0] ?? "", row.dtypes[1] ?? ""],
    bytes: row.bytes,
    count: row.shape ? elements(row.shape) : null,
    differing: row.differing,
    unequal_nonfinite: row.unequal_nonfinite,
    max_abs: row.max_abs,
    rel_l2: row.rel_l2,
    cosine: row.cosine,
    max_ulp: row.max_ulp,
    cause: row.cause,
    cause_text: row.cause_text,
    rearranged: row.rearranged,
  };
}

export function leftovers(side: Side, list: readonly Schemas["Leftover"][]): Leftover[] {
  return list.map(({ name, suggestion, score }) => ({ side, name, suggestion, score, dtype: null, shape: null }));
}
