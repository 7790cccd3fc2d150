//! One row for each pair, for spreadsheets.

use std::io::Write;
use twinscope_compare::{Report, report::PairReport};
use twinscope_measure::SideTotals;

const HEADER: &str = "order,name,reference,candidate,rule,score,layout,shape,reference_dtype,candidate_dtype,verdict,origin,count,compared,differing,\
max_abs,mean_abs,max_rel,mean_rel,mse,rel_l2,cosine,max_ulp,\
reference_mean,reference_std,reference_min,reference_max,reference_nan,reference_inf,reference_zero,\
candidate_mean,candidate_std,candidate_min,candidate_max,candidate_nan,candidate_inf,candidate_zero,reason";

/// Undefined is empty; NaN and infinities are words, as in JSON.
pub(crate) fn csv(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{HEADER}")?;
    for (order, pair) in report.pairs.iter().enumerate() {
        let fields: Vec<String> = fields(order, pair).iter().map(|field| quoted(field)).collect();
        writeln!(out, "{}", fields.join(","))?;
    }
    Ok(())
}

fn fields(order: usize, pair: &PairReport) -> Vec<String> {
    let mut fields = vec![
        order.to_string(),
        pair.name.clone(),
        pair.reference.join(" + "),
        pair.candidate.join(" + "),
        pair.rule.name().to_owned(),
        pair.score.to_string(),
        pair.layout.as_ref().map_or_else(String::new, |layout| layout.text.clone()),
        pair.shape.as_ref().map_or_else(String::new, ToString::to_string),
        pair.dtypes[0].to_string(),
        pair.dtypes[1].to_string(),
        pair.verdict.name().to_owned(),
        pair.origin.map_or("", twinscope_compare::Origin::name).to_owned(),
    ];
    match &pair.totals {
        None => fields.extend(std::iter::repeat_n(String::new(), 25)),
        Some(totals) => {
            fields.extend([totals.count, totals.compared, totals.differing].map(|count| count.to_string()));
            let numbers = [totals.max_abs, totals.mean_abs, totals.max_rel, totals.mean_rel, totals.mse, totals.rel_l2];
            fields.extend(numbers.map(number));
            fields.extend([totals.cosine, totals.max_ulp].map(number));
            fields.extend(side(&totals.reference));
            fields.extend(side(&totals.candidate));
        }
    }
    fields.push(pair.reason.clone().unwrap_or_default());
    fields
}

fn side(side: &SideTotals) -> impl Iterator<Item = String> {
    let numbers = [side.mean, side.std, side.min, side.max].map(number);
    numbers.into_iter().chain([side.nan, side.inf, side.zero].map(|count| count.to_string()))
}

fn number(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(value) if value.is_nan() => "NaN".to_owned(),
        Some(value) if value.is_infinite() => if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        Some(value) => value.to_string(),
    }
}

/// A spreadsheet takes a field that begins with `=`, `+`, `-` or `@` as a formula; a name from a file must not be one.
fn quoted(field: &str) -> String {
    let formula = field.starts_with(['=', '+', '-', '@']) && field.parse::<f64>().is_err() && !field.ends_with("Infinity");
    if formula {
        return format!("\"'{}\"", field.replace('"', "\"\""));
    }
    if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}
