//! The report as a document: what `diff --json` prints, read back. A finished session, an imported report and a running comparison all
//! speak through it, so nothing depends on which of them a pair came from.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use twinscope_compare::layout::Step;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr,
        schema::{ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type},
    },
};

/// A number that may be NaN or infinite, which JSON has no number for: then it is one of three strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(pub f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            x if x.is_nan() => serializer.serialize_str("NaN"),
            f64::INFINITY => serializer.serialize_str("Infinity"),
            f64::NEG_INFINITY => serializer.serialize_str("-Infinity"),
            x => serializer.serialize_f64(x),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(f64),
            Word(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(x) => Ok(Self(x)),
            Either::Word(word) => match word.as_str() {
                "NaN" => Ok(Self(f64::NAN)),
                "Infinity" => Ok(Self(f64::INFINITY)),
                "-Infinity" => Ok(Self(f64::NEG_INFINITY)),
                _ => Err(serde::de::Error::custom(format!(
                    "`{word}` is not a number"
                ))),
            },
        }
    }
}

impl PartialSchema for Number {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Number));
        let word = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .enum_values(Some(["NaN", "Infinity", "-Infinity"]))
            .build();
        OneOfBuilder::new().item(number).item(word).into()
    }
}

impl ToSchema for Number {
    fn name() -> std::borrow::Cow<'static, str> {
        "Number".into()
    }
}

impl From<f64> for Number {
    fn from(x: f64) -> Self {
        Self(x)
    }
}

/// One name as itself, several as a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Names {
    One(String),
    Many(Vec<String>),
}

impl Names {
    pub fn all(&self) -> &[String] {
        match self {
            Names::One(name) => std::slice::from_ref(name),
            Names::Many(names) => names,
        }
    }
}

/// The opinion on one pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Identical,
    Rounding,
    Harmless,
    Diverged,
    Incomparable,
}

/// The opinion on the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overall {
    Agree,
    Diverged,
    Incomparable,
}

/// Where a divergence began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Own,
    Inherited,
}

/// The steps that make the candidate's shape the reference's, in words and as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Layout {
    pub text: String,
    #[schema(value_type = Vec<Object>)]
    pub steps: Vec<Step>,
    /// `shape`, `values`, `declared` or `user`
    pub by: String,
}

/// Why, in one sentence, with what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    pub kind: String,
    #[schema(required = true)]
    pub explained: Option<Number>,
    pub text: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub details: serde_json::Value,
}

/// One side of a pair, measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SideTotals {
    #[schema(required = true)]
    pub mean: Option<Number>,
    #[schema(required = true)]
    pub std: Option<Number>,
    #[schema(required = true)]
    pub min: Option<Number>,
    #[schema(required = true)]
    pub max: Option<Number>,
    #[schema(required = true)]
    pub nan: u64,
    #[schema(required = true)]
    pub inf: u64,
    #[schema(required = true)]
    pub zero: u64,
    #[schema(required = true)]
    pub norm: Option<Number>,
}

/// One of the worst elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Worst {
    #[schema(required = true)]
    pub index: Option<Vec<u64>>,
    /// reference, candidate
    pub values: [Number; 2],
    /// The same in all their digits, where a double has not enough of them: integers beyond 2^53.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<[String; 2]>,
}

impl Worst {
    /// `candidate - reference`, exact before it is rounded once.
    pub fn difference(&self) -> f64 {
        let whole = |text: &String| text.parse::<i128>().ok();
        match self
            .exact
            .as_ref()
            .map(|[reference, candidate]| (whole(reference), whole(candidate)))
        {
            Some((Some(reference), Some(candidate))) => candidate.saturating_sub(reference) as f64,
            _ => self.values[1].0 - self.values[0].0,
        }
    }
}

/// Numbers measured over a pair, no opinion. Undefined is null, never 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    pub count: u64,
    pub compared: u64,
    pub differing: u64,
    #[schema(required = true)]
    pub max_abs: Option<Number>,
    #[schema(required = true)]
    pub mean_abs: Option<Number>,
    #[schema(required = true)]
    pub max_rel: Option<Number>,
    #[schema(required = true)]
    pub mean_rel: Option<Number>,
    #[schema(required = true)]
    pub mse: Option<Number>,
    #[schema(required = true)]
    pub rel_l2: Option<Number>,
    #[schema(required = true)]
    pub cosine: Option<Number>,
    #[schema(required = true)]
    pub max_ulp: Option<Number>,
    #[schema(required = true)]
    pub argmax: Option<Vec<u64>>,
    #[schema(required = true)]
    pub worst: Option<[Number; 2]>,
    /// `worst` in all its digits, where a double has not enough of them: integers beyond 2^53.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_exact: Option<[String; 2]>,
    pub reference: SideTotals,
    pub candidate: SideTotals,
    #[serde(default)]
    #[schema(required = true)]
    pub top: Vec<Worst>,
    /// How many differences have each power of two as magnitude: exponent, count.
    #[serde(default)]
    #[schema(required = true)]
    pub magnitudes: Vec<(i32, u64)>,
    /// How many differ by 2^k .. 2^(k+1) units in the last place: k, count.
    #[serde(default)]
    #[schema(required = true)]
    pub ulps: Vec<(u32, u64)>,
    /// Elements beyond the tolerance, when one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<u64>,
}

impl Totals {
    /// Whether some element is not finite on one side and not the same on the other: it is then the worst one, or all that differs.
    pub fn unequal_nonfinite(&self) -> bool {
        let worst = self
            .worst
            .is_some_and(|worst| worst.iter().any(|value| !value.0.is_finite()));
        self.differing > 0 && (worst || self.max_abs.is_none_or(|most| most.0 == 0.0))
    }
}

/// One pair, as the report has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pair {
    pub name: String,
    pub reference: Names,
    pub candidate: Names,
    pub order: usize,
    pub rule: String,
    pub score: f64,
    #[schema(required = true)]
    pub layout: Option<Layout>,
    #[schema(required = true)]
    pub shape: Option<Vec<u64>>,
    pub dtypes: [String; 2],
    pub verdict: Verdict,
    #[schema(required = true)]
    pub agrees_at: Option<String>,
    #[schema(required = true)]
    pub origin: Option<Origin>,
    #[schema(required = true)]
    pub totals: Option<Totals>,
    #[serde(default)]
    #[schema(required = true)]
    pub causes: Vec<Cause>,
    /// What kept it from being measured.
    #[serde(default)]
    #[schema(required = true)]
    pub reason: Option<String>,
}

impl Pair {
    /// What a pinned order and a link know a pair by.
    pub fn key(&self) -> String {
        format!(
            "{} = {}",
            self.reference.all().join(" + "),
            self.candidate.all().join(" + ")
        )
    }
}

/// A tensor without its partner, and the nearest one there is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Leftover {
    pub name: String,
    #[schema(required = true)]
    pub suggestion: Option<String>,
    #[schema(required = true)]
    pub score: Option<f64>,
}

/// A tensor or member that could not be read, or was left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Skipped {
    pub side: String,
    pub name: String,
    pub reason: String,
}

/// Something a user should know about a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub side: String,
    pub kind: String,
    pub text: String,
}

/// The pair where it begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FirstDivergence {
    pub pair: usize,
    pub name: String,
}

/// The whole comparison, as `diff --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    pub schema: u32,
    pub reference: String,
    pub candidate: String,
    pub verdict: Overall,
    pub partial: bool,
    #[schema(required = true)]
    pub first_divergence: Option<FirstDivergence>,
    pub divergences: Vec<usize>,
    pub layer_offset: i64,
    /// Of each side, the coarser dtype that all of it was computed in, where it is recorded in a wider one.
    #[serde(default)]
    #[schema(required = true)]
    pub computed_in: [Option<String>; 2],
    pub pairs: Vec<Pair>,
    pub only_reference: Vec<Leftover>,
    pub only_candidate: Vec<Leftover>,
    #[serde(default)]
    #[schema(required = true)]
    pub skipped: Vec<Skipped>,
    #[serde(default)]
    #[schema(required = true)]
    pub findings: Vec<Finding>,
    #[serde(default)]
    #[schema(required = true)]
    pub left_out: Vec<Skipped>,
}

/// Reports of this schema can be read.
pub const SCHEMA: u32 = 1;

impl Report {
    pub fn of(report: &twinscope_compare::Report) -> Result<Self, serde_json::Error> {
        // As text: half the time of a tree of values, and with ten thousand pairs somebody waits for it.
        serde_json::from_slice(&serde_json::to_vec(report)?)
    }
}

/// Pairs of each verdict.
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

/// What a comparison came to, in one line.
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

/// One pair in the list: what a table shows of it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Row {
    pub pair: usize,
    pub key: String,
    pub name: String,
    pub reference: Vec<String>,
    pub candidate: Vec<String>,
    pub order: usize,
    pub rule: String,
    pub score: f64,
    #[schema(required = true)]
    pub shape: Option<Vec<u64>>,
    pub dtypes: [String; 2],
    /// Of one row-major form of the shape on each side, together; null when not known.
    #[schema(required = true)]
    pub bytes: Option<u64>,
    /// Null while it is not measured yet.
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
    /// NaN and infinities of both sides.
    #[schema(required = true)]
    pub nonfinite: Option<u64>,
    /// Some element is a NaN or an infinity on one side and not the same on the other: further apart than any number, which no number here says.
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
    /// `measured` is false for a pair whose turn has not come.
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
            cause: cause.map(|cause| cause.kind.clone()),
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

impl Headline {
    pub fn of(report: &Report) -> Self {
        Self::so_far(report, &[])
    }

    /// Counts only what is measured; a pair that still waits has no verdict yet. Nothing said stands for all measured.
    pub fn so_far(report: &Report, measured: &[bool]) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nan_on_one_side_alone_is_told_of_a_pair_whose_other_values_agree() {
        let totals = |differing: u64, max_abs: f64, worst: serde_json::Value| -> Totals {
            let json = serde_json::json!({"count": 4, "compared": 3, "differing": differing, "max_abs": max_abs, "worst": worst, "reference": {}, "candidate": {}});
            serde_json::from_value(json).unwrap()
        };
        assert!(totals(1, 0.0, serde_json::json!([1.0, "NaN"])).unequal_nonfinite());
        assert!(totals(5, 0.25, serde_json::json!(["Infinity", "-Infinity"])).unequal_nonfinite());
        assert!(!totals(5, 0.25, serde_json::json!([1.0, 1.25])).unequal_nonfinite());
        assert!(!totals(0, 0.0, serde_json::json!([1.0, 1.0])).unequal_nonfinite());
    }

    #[test]
    fn a_nan_survives_the_way_through_json() {
        let numbers = [
            Number(f64::NAN),
            Number(f64::INFINITY),
            Number(f64::NEG_INFINITY),
            Number(0.1),
        ];
        let text = serde_json::to_string(&numbers).unwrap();
        assert_eq!(text, r#"["NaN","Infinity","-Infinity",0.1]"#);
        let back: Vec<Number> = serde_json::from_str(&text).unwrap();
        assert!(back[0].0.is_nan() && back[1..] == numbers[1..]);
        assert!(serde_json::from_str::<Number>(r#""nought""#).is_err());
    }
}
