//! A comparison in one line.

use crate::{Cause, Comparison, FirstDivergence, Overall, Verdict};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How many pairs have each verdict, and how many tensors have no pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    pub identical: usize,
    pub rounding: usize,
    pub harmless: usize,
    pub diverged: usize,
    pub incomparable: usize,
    pub only_reference: usize,
    pub only_candidate: usize,
    pub skipped: usize,
    pub findings: usize,
}

/// The result of a comparison in one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Headline {
    pub verdict: Overall,
    pub partial: bool,
    #[schema(required = true)]
    pub first_divergence: Option<FirstDivergence>,
    /// The best cause of the first divergence.
    #[schema(required = true)]
    pub cause: Option<Cause>,
    pub divergences: usize,
    /// As in the report.
    #[serde(default)]
    #[schema(required = true)]
    pub computed_in: [Option<String>; 2],
    pub pairs: usize,
    pub counts: Counts,
}

impl Headline {
    pub fn of(report: &Comparison) -> Self {
        Self::so_far(report, &[])
    }

    /// Counts measured pairs only: a pair that is still waiting has no verdict. An empty `measured` means that all are measured.
    pub fn so_far(report: &Comparison, measured: &[bool]) -> Self {
        let is_measured = |nth: usize| measured.get(nth).copied().unwrap_or(true);
        let count = |verdict: Verdict| {
            report
                .pairs
                .iter()
                .enumerate()
                .filter(|(nth, pair)| pair.verdict == verdict && is_measured(*nth))
                .count()
        };
        let first = report.first_divergence.clone();
        Self {
            verdict: report.verdict,
            partial: report.partial,
            cause: first
                .as_ref()
                .and_then(|first| report.pairs.get(first.pair)?.causes.first().cloned()),
            first_divergence: first,
            divergences: report.divergences.len(),
            computed_in: report.computed_in.clone(),
            pairs: report.pairs.len(),
            counts: Counts {
                identical: count(Verdict::Identical),
                rounding: count(Verdict::Rounding),
                harmless: count(Verdict::Harmless),
                diverged: count(Verdict::Diverged),
                incomparable: count(Verdict::Incomparable),
                only_reference: report.only_reference.len(),
                only_candidate: report.only_candidate.len(),
                skipped: report.skipped.len(),
                findings: report.findings.len(),
            },
        }
    }
}
