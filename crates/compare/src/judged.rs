//! A comparison in memory: every pair with its facts, its judgement and its causes. [`Judged::document`] is what everyone else sees.

use crate::{
    layout::Layout,
    noise::Measures,
    settings::Rule,
    verdict::{self, Judgement, Origin, Verdict},
};
use twinscope_measure::{SideTotals, Totals, Worst};
use twinscope_report as document;
pub use twinscope_report::{Cause, Finding, Leftover, Overall, Skipped, Unmeasured};
use twinscope_tensor::{DType, Shape};

/// One pair, judged.
#[derive(Clone, Debug)]
pub struct JudgedPair {
    pub name: String,
    pub reference: Vec<String>,
    pub candidate: Vec<String>,
    pub rule: Rule,
    pub score: f64,
    pub layout: Option<Layout>,
    pub shape: Option<Shape>,
    pub dtypes: [DType; 2],
    /// Those that its values were rounded to, by which it is judged.
    pub judged_by: [DType; 2],
    pub judgement: Judgement,
    pub totals: Option<Totals>,
    pub causes: Vec<Cause>,
    /// What rounding can do here, by the four measures of [`crate::noise`]; 0 where everything must be equal.
    pub noise: Measures,
    /// What was found, by the same.
    pub measures: Measures,
    /// Loaded, not computed.
    pub parameter: bool,
    /// What kept it from being measured, and the same in words.
    pub unmeasured: Option<Unmeasured>,
    pub reason: Option<String>,
}

impl JudgedPair {
    pub fn verdict(&self) -> Verdict {
        self.judgement.verdict()
    }

    pub fn origin(&self) -> Option<Origin> {
        self.judgement.origin()
    }

    pub fn agrees_at(&self) -> Option<&str> {
        self.judgement.agrees_at()
    }
}

/// The whole comparison.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    pub reference: String,
    pub candidate: String,
    /// Stopped before everything was measured.
    pub partial: bool,
    pub layer_offset: i64,
    /// Of each side, the coarser dtype that all of it was computed in, where it is recorded in a wider one.
    pub computed_in: [Option<DType>; 2],
    pub pairs: Vec<JudgedPair>,
    pub only_reference: Vec<Leftover>,
    pub only_candidate: Vec<Leftover>,
    pub skipped: Vec<Skipped>,
    pub findings: Vec<Finding>,
    /// Left out by `--only` and `--skip`.
    pub left_out: Vec<Skipped>,
}

impl Judged {
    pub fn verdict(&self) -> Overall {
        verdict::overall(self.pairs.iter().map(|pair| &pair.judgement))
    }

    /// The pairs that diverged by themselves, in order.
    pub fn divergences(&self) -> Vec<usize> {
        self.pairs
            .iter()
            .enumerate()
            .filter(|(_, pair)| pair.judgement.is_own_divergence())
            .map(|(at, _)| at)
            .collect()
    }

    pub fn first_divergence(&self) -> Option<usize> {
        self.divergences().first().copied()
    }
}

impl Judged {
    /// The document that is printed, shown and kept.
    pub fn document(&self) -> document::Comparison {
        let divergences = self.divergences();
        document::Comparison {
            schema: document::SCHEMA,
            reference: self.reference.clone(),
            candidate: self.candidate.clone(),
            verdict: self.verdict(),
            partial: self.partial,
            first_divergence: divergences.first().map(|pair| document::FirstDivergence {
                name: self.pairs[*pair].name.clone(),
                pair: *pair,
            }),
            divergences,
            layer_offset: self.layer_offset,
            computed_in: self
                .computed_in
                .map(|dtype| dtype.map(|dtype| dtype.to_string())),
            pairs: self
                .pairs
                .iter()
                .enumerate()
                .map(|(order, pair)| pair.document(order))
                .collect(),
            only_reference: self.only_reference.clone(),
            only_candidate: self.only_candidate.clone(),
            skipped: self.skipped.clone(),
            findings: self.findings.clone(),
            left_out: self.left_out.clone(),
        }
    }
}

impl JudgedPair {
    /// One element of the document's `pairs`.
    fn document(&self, order: usize) -> document::Pair {
        document::Pair {
            name: self.name.clone(),
            reference: self.reference.as_slice().into(),
            candidate: self.candidate.as_slice().into(),
            order,
            rule: self.rule.into(),
            score: self.score,
            layout: self.layout.as_ref().map(|layout| document::Layout {
                text: layout.text.clone(),
                steps: layout.steps.clone(),
                by: layout.by.into(),
            }),
            shape: self.shape.as_ref().map(|shape| shape.dims().to_vec()),
            dtypes: self.dtypes.map(|dtype| dtype.to_string()),
            verdict: self.verdict(),
            agrees_at: self.agrees_at().map(str::to_owned),
            origin: self.origin(),
            totals: self
                .totals
                .as_ref()
                .map(|totals| totals_document(totals, self.shape.as_ref())),
            causes: self.causes.clone(),
            reason: self.reason.clone(),
            unmeasured: self.unmeasured,
        }
    }
}

fn number(value: Option<f64>) -> Option<document::Number> {
    value.map(document::Number)
}

fn totals_document(totals: &Totals, shape: Option<&Shape>) -> document::Totals {
    let index = |at: u64| shape.map(|shape| shape.unravel(at));
    let worst = totals.worst.as_ref();
    document::Totals {
        argmax: worst.and_then(|worst| index(worst.at)),
        beyond: totals.beyond,
        candidate: side_document(&totals.candidate),
        compared: totals.compared,
        cosine: number(totals.cosine),
        count: totals.count,
        differing: totals.differing,
        magnitudes: totals.magnitudes.clone(),
        max_abs: number(totals.max_abs),
        max_rel: number(totals.max_rel),
        max_ulp: number(totals.max_ulp),
        mean_abs: number(totals.mean_abs),
        mean_rel: number(totals.mean_rel),
        mse: number(totals.mse),
        reference: side_document(&totals.reference),
        rel_l2: number(totals.rel_l2),
        top: totals
            .top
            .iter()
            .map(|top| document::Worst {
                exact: top.exact(),
                index: index(top.at),
                values: values(top),
            })
            .collect(),
        ulps: totals.ulps.clone(),
        worst: worst.filter(|worst| is_number(worst)).map(values),
        worst_exact: worst.and_then(Worst::exact),
        nonfinite_differing: totals.nonfinite_differing,
    }
}

/// Words and records have no values. Two that are NaN are equal, and never the worst.
fn is_number(worst: &Worst) -> bool {
    !(worst.reference.is_nan() && worst.candidate.is_nan() && worst.imaginary.is_none())
}

fn values(worst: &Worst) -> [document::Number; 2] {
    [worst.reference, worst.candidate].map(document::Number)
}

fn side_document(side: &SideTotals) -> document::SideTotals {
    document::SideTotals {
        inf: side.inf,
        max: number(side.max),
        mean: number(side.mean),
        min: number(side.min),
        nan: side.nan,
        norm: number(side.norm),
        std: number(side.std),
        zero: side.zero,
    }
}
