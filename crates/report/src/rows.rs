//! The pairs as a table shows them.

use crate::{Known, Number, Origin, Pair, Rule, Totals, Verdict};
use serde::Serialize;
use utoipa::ToSchema;

/// One pair as a row of a table.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Row {
    pub pair: usize,
    pub key: String,
    pub name: String,
    pub reference: Vec<String>,
    pub candidate: Vec<String>,
    pub order: usize,
    #[schema(value_type = String)]
    pub rule: Known<Rule>,
    pub score: f64,
    #[schema(required = true)]
    pub shape: Option<Vec<u64>>,
    pub dtypes: [String; 2],
    /// Size of both sides together, row-major; null when unknown.
    #[schema(required = true)]
    pub bytes: Option<u64>,
    /// Null until the pair is measured.
    #[schema(required = true)]
    pub verdict: Option<Verdict>,
    #[schema(required = true)]
    pub agrees_at: Option<String>,
    #[schema(required = true)]
    pub origin: Option<Origin>,
    #[schema(required = true)]
    pub max_abs: Option<Number>,
    #[schema(required = true)]
    pub rel_l2: Option<Number>,
    #[schema(required = true)]
    pub cosine: Option<Number>,
    #[schema(required = true)]
    pub max_ulp: Option<Number>,
    #[schema(required = true)]
    pub differing: Option<u64>,
    /// NaN and infinite elements of both sides together.
    #[schema(required = true)]
    pub nonfinite: Option<u64>,
    /// Some element is NaN or infinite on one side and something else on the other, which no number of this row shows.
    pub unequal_nonfinite: bool,
    /// The kind of the best cause, and its sentence.
    #[schema(required = true)]
    pub cause: Option<String>,
    #[schema(required = true)]
    pub cause_text: Option<String>,
    #[schema(required = true)]
    pub reason: Option<String>,
    /// Whether the layout has steps.
    pub rearranged: bool,
}

impl Row {
    /// `measured` is false for a pair that is still waiting.
    pub fn of(nth: usize, pair: &Pair, measured: bool) -> Self {
        let totals = pair.totals.as_ref();
        let cause = pair.causes.first();
        Self {
            pair: nth,
            key: pair.key(),
            name: pair.name.clone(),
            reference: pair.reference.all().to_vec(),
            candidate: pair.candidate.all().to_vec(),
            order: pair.order,
            rule: pair.rule.clone(),
            score: pair.score,
            shape: pair.shape.clone(),
            dtypes: pair.dtypes.clone(),
            bytes: bytes(pair),
            verdict: measured.then_some(pair.verdict),
            agrees_at: pair.agrees_at.clone(),
            origin: pair.origin,
            max_abs: totals.and_then(|totals| totals.max_abs),
            rel_l2: totals.and_then(|totals| totals.rel_l2),
            cosine: totals.and_then(|totals| totals.cosine),
            max_ulp: totals.and_then(|totals| totals.max_ulp),
            differing: totals.map(|totals| totals.differing),
            nonfinite: totals.map(|totals| {
                [&totals.reference, &totals.candidate]
                    .map(|side| side.nan + side.inf)
                    .iter()
                    .sum()
            }),
            unequal_nonfinite: totals.is_some_and(Totals::unequal_nonfinite),
            cause: cause.map(|cause| cause.kind.to_string()),
            cause_text: cause.map(|cause| cause.text.clone()),
            reason: pair.reason.clone().filter(|_| measured),
            rearranged: pair
                .layout
                .as_ref()
                .is_some_and(|layout| !layout.steps.is_empty()),
        }
    }
}

fn bytes(pair: &Pair) -> Option<u64> {
    let elements = twinscope_tensor::Shape::from(pair.shape.clone()?).elements()?;
    let size = |name: &String| twinscope_tensor::DType::parse(name)?.byte_len(elements);
    size(&pair.dtypes[0])?.checked_add(size(&pair.dtypes[1])?)
}
