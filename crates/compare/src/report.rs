//! Every pair with its totals and verdict, and every tensor left without a partner, in execution order: the contract's `diff --json`.

use crate::{
    layout::Layout,
    noise::Measures,
    settings::Rule,
    verdict::{self, Judgement, Origin, Verdict},
};
use serde::{Serialize, Serializer, ser::SerializeStruct};
use twinscope_measure::{SideTotals, Totals, Worst};
pub use twinscope_report::{Cause, Overall};
use twinscope_tensor::{DType, Shape};

/// One pair, judged.
#[derive(Clone, Debug)]
pub struct PairReport {
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

impl PairReport {
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

/// What kept a pair from being measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmeasured {
    /// The shapes cannot be lined up.
    Shapes,
    Unreadable,
    /// Stopped before its turn.
    Stopped,
    /// One of too many: ranked by a sketch.
    Ranked,
}

/// A tensor without its partner, and the nearest one there is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftoverReport {
    pub name: String,
    pub suggestion: Option<String>,
    pub score: Option<f64>,
}

/// A tensor or member that could not be read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SkippedReport {
    pub side: &'static str,
    pub name: String,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FindingReport {
    pub side: &'static str,
    pub kind: &'static str,
    pub text: String,
    #[serde(skip)]
    pub attack: bool,
}

/// The whole comparison.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub reference: String,
    pub candidate: String,
    /// Stopped before everything was measured.
    pub partial: bool,
    pub layer_offset: i64,
    /// Of each side, the coarser dtype that all of it was computed in, where it is recorded in a wider one.
    pub computed_in: [Option<DType>; 2],
    pub pairs: Vec<PairReport>,
    pub only_reference: Vec<LeftoverReport>,
    pub only_candidate: Vec<LeftoverReport>,
    pub skipped: Vec<SkippedReport>,
    pub findings: Vec<FindingReport>,
    /// Left out by `--only` and `--skip`.
    pub left_out: Vec<SkippedReport>,
}

impl Report {
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

/// NaN and infinities as the contract's strings, undefined as null.
fn number(value: Option<f64>) -> serde_json::Value {
    match value {
        None => serde_json::Value::Null,
        Some(value) if value.is_nan() => "NaN".into(),
        Some(value) if value.is_infinite() => {
            if value > 0.0 { "Infinity" } else { "-Infinity" }.into()
        }
        Some(value) => value.into(),
    }
}

/// One name as itself, several as a list.
fn names(names: &[String]) -> serde_json::Value {
    match names {
        [one] => one.as_str().into(),
        many => many.into(),
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Report", 16)?;
        let divergences = self.divergences();
        let first = divergences
            .first()
            .map(|at| serde_json::json!({"pair": at, "name": self.pairs[*at].name}));
        out.serialize_field("schema", &1)?;
        out.serialize_field("reference", &self.reference)?;
        out.serialize_field("candidate", &self.candidate)?;
        out.serialize_field("verdict", &self.verdict())?;
        out.serialize_field("partial", &self.partial)?;
        out.serialize_field("first_divergence", &first)?;
        out.serialize_field("divergences", &divergences)?;
        out.serialize_field("layer_offset", &self.layer_offset)?;
        out.serialize_field(
            "computed_in",
            &self
                .computed_in
                .map(|dtype| dtype.map(|dtype| dtype.to_string())),
        )?;
        out.serialize_field(
            "pairs",
            &self
                .pairs
                .iter()
                .enumerate()
                .map(|(order, pair)| NumberedPair { order, pair })
                .collect::<Vec<_>>(),
        )?;
        out.serialize_field("only_reference", &self.only_reference)?;
        out.serialize_field("only_candidate", &self.only_candidate)?;
        out.serialize_field("skipped", &self.skipped)?;
        out.serialize_field("findings", &self.findings)?;
        out.serialize_field("left_out", &self.left_out)?;
        out.end()
    }
}

/// A pair with its place in the report: one element of `pairs`.
#[derive(Debug)]
pub struct NumberedPair<'a> {
    pub order: usize,
    pub pair: &'a PairReport,
}

impl Serialize for NumberedPair<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pair = self.pair;
        let mut out = serializer.serialize_struct("Pair", 15)?;
        out.serialize_field("name", &pair.name)?;
        out.serialize_field("reference", &names(&pair.reference))?;
        out.serialize_field("candidate", &names(&pair.candidate))?;
        out.serialize_field("order", &self.order)?;
        out.serialize_field("rule", &pair.rule)?;
        out.serialize_field("score", &pair.score)?;
        out.serialize_field("layout", &pair.layout)?;
        out.serialize_field("shape", &pair.shape.as_ref().map(Shape::dims))?;
        out.serialize_field("dtypes", &pair.dtypes.map(|dtype| dtype.to_string()))?;
        out.serialize_field("verdict", &pair.verdict())?;
        out.serialize_field("agrees_at", &pair.agrees_at())?;
        out.serialize_field("origin", &pair.origin())?;
        out.serialize_field(
            "totals",
            &pair
                .totals
                .as_ref()
                .map(|totals| json_totals(totals, pair.shape.as_ref())),
        )?;
        out.serialize_field("causes", &pair.causes)?;
        out.serialize_field("reason", &pair.reason)?;
        out.end()
    }
}

fn json_totals(totals: &Totals, shape: Option<&Shape>) -> serde_json::Value {
    let index = |at: u64| shape.map(|shape| shape.unravel(at));
    let mut json = serde_json::json!({
        "count": totals.count,
        "compared": totals.compared,
        "differing": totals.differing,
        "max_abs": number(totals.max_abs),
        "mean_abs": number(totals.mean_abs),
        "max_rel": number(totals.max_rel),
        "mean_rel": number(totals.mean_rel),
        "mse": number(totals.mse),
        "rel_l2": number(totals.rel_l2),
        "cosine": number(totals.cosine),
        "max_ulp": number(totals.max_ulp),
        "argmax": totals.worst.as_ref().and_then(|worst| index(worst.at)),
        "worst": totals.worst.as_ref().filter(|worst| is_number(worst)).map(values),
        "reference": side(&totals.reference),
        "candidate": side(&totals.candidate),
        "top": totals.top.iter().map(|top| one_of_top(top, index(top.at))).collect::<Vec<_>>(),
        "magnitudes": totals.magnitudes,
        "ulps": totals.ulps,
    });
    if let Some(exact) = totals.worst.as_ref().and_then(Worst::exact) {
        json["worst_exact"] = exact.to_vec().into();
    }
    if let Some(beyond) = totals.beyond {
        json["beyond"] = beyond.into();
    }
    json
}

/// Words and records have no values. Two that are NaN are equal, and never the worst.
fn is_number(worst: &Worst) -> bool {
    !(worst.reference.is_nan() && worst.candidate.is_nan() && worst.imaginary.is_none())
}

fn values(worst: &Worst) -> [serde_json::Value; 2] {
    [worst.reference, worst.candidate].map(|value| number(Some(value)))
}

fn one_of_top(worst: &Worst, index: Option<Vec<u64>>) -> serde_json::Value {
    let mut json = serde_json::json!({"index": index, "values": values(worst)});
    if let Some(exact) = worst.exact() {
        json["exact"] = exact.to_vec().into();
    }
    json
}

fn side(side: &SideTotals) -> serde_json::Value {
    serde_json::json!({
        "mean": number(side.mean),
        "std": number(side.std),
        "min": number(side.min),
        "max": number(side.max),
        "nan": side.nan,
        "inf": side.inf,
        "zero": side.zero,
        "norm": number(side.norm),
    })
}
/// The dtypes of a pair, for messages.
pub fn dtype_text(dtypes: [DType; 2]) -> String {
    if dtypes[0] == dtypes[1] {
        dtypes[0].to_string()
    } else {
        format!("{} / {}", dtypes[0], dtypes[1])
    }
}
