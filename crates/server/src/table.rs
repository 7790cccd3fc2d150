//! One line for each pair, for spreadsheets: what `diff --csv` writes and the page gives away.

use twinscope_report::{Comparison, Number, Origin, Pair, SideTotals, Totals};

const HEADER: &str = "order,name,reference,candidate,rule,score,layout,shape,reference_dtype,candidate_dtype,verdict,origin,count,compared,differing,\
max_abs,mean_abs,max_rel,mean_rel,mse,rel_l2,cosine,max_ulp,\
reference_mean,reference_std,reference_min,reference_max,reference_nan,reference_inf,reference_zero,\
candidate_mean,candidate_std,candidate_min,candidate_max,candidate_nan,candidate_inf,candidate_zero,reason,cause,cause_text";

/// Undefined is empty; NaN and infinities are words, as in JSON.
pub fn csv(report: &Comparison) -> String {
    let mut text = format!("{HEADER}\n");
    for pair in &report.pairs {
        let fields: Vec<String> = fields(pair).iter().map(|field| quoted(field)).collect();
        text += &fields.join(",");
        text.push('\n');
    }
    text
}

fn fields(pair: &Pair) -> Vec<String> {
    let shape = pair.shape.as_ref().map_or_else(String::new, |shape| {
        twinscope_tensor::Shape::from(shape.clone()).to_string()
    });
    let mut fields = vec![
        pair.order.to_string(),
        pair.name.clone(),
        pair.reference.all().join(" + "),
        pair.candidate.all().join(" + "),
        pair.rule.name().to_owned(),
        pair.score.to_string(),
        pair.layout
            .as_ref()
            .map_or_else(String::new, |layout| layout.text.clone()),
        shape,
        pair.dtypes[0].clone(),
        pair.dtypes[1].clone(),
        pair.verdict.name().to_owned(),
        pair.origin.map_or("", Origin::name).to_owned(),
    ];
    match &pair.totals {
        None => fields.extend(std::iter::repeat_n(String::new(), 25)),
        Some(totals) => fields.extend(numbers(totals)),
    }
    let cause = pair.causes.first();
    fields.push(pair.reason.clone().unwrap_or_default());
    fields.push(cause.map_or_else(String::new, |cause| cause.kind.to_string()));
    fields.push(cause.map_or_else(String::new, |cause| cause.text.clone()));
    fields
}

fn numbers(totals: &Totals) -> Vec<String> {
    let mut fields: Vec<String> = [totals.count, totals.compared, totals.differing]
        .map(|count| count.to_string())
        .to_vec();
    let measures = [
        totals.max_abs,
        totals.mean_abs,
        totals.max_rel,
        totals.mean_rel,
        totals.mse,
        totals.rel_l2,
        totals.cosine,
        totals.max_ulp,
    ];
    fields.extend(measures.map(number));
    fields.extend(side(&totals.reference));
    fields.extend(side(&totals.candidate));
    fields
}

fn side(side: &SideTotals) -> impl Iterator<Item = String> {
    let numbers = [side.mean, side.std, side.min, side.max].map(number);
    numbers
        .into_iter()
        .chain([side.nan, side.inf, side.zero].map(|count| count.to_string()))
}

fn number(value: Option<Number>) -> String {
    match value.map(|number| number.0) {
        None => String::new(),
        Some(value) if value.is_nan() => "NaN".to_owned(),
        Some(value) if value.is_infinite() => {
            if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        Some(value) => value.to_string(),
    }
}

/// A spreadsheet takes a field that begins with `=`, `+`, `-` or `@` as a formula, in quotes or not; a text from a file must not be one.
pub(crate) fn quoted(field: &str) -> String {
    let formula = field.starts_with(['=', '+', '-', '@'])
        && field.parse::<f64>().is_err()
        && !field.ends_with("Infinity");
    if formula {
        return format!("\"'{}\"", field.replace('"', "\"\""));
    }
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_no_formula_and_a_number_stays_one() {
        for (field, expected) in [
            ("=x()", "\"'=x()\""),
            ("@a,\"b\"", "\"'@a,\"\"b\"\"\""),
            ("-x", "\"'-x\""),
            ("-1.5e-7", "-1.5e-7"),
            ("-Infinity", "-Infinity"),
            ("a,b", "\"a,b\""),
            ("two\nlines", "\"two\nlines\""),
        ] {
            assert_eq!(quoted(field), expected);
        }
    }
}
