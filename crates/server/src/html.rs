//! A report as one HTML file that opens anywhere: the page's own bundle with the report in it, or a plain table where there is no bundle.
//!
//! The page is built with a second entry, `report.html`, that has everything in one file and an empty element
//! `<script type="application/json" id="twinscope-report">`. The report is put into it. The same element is what an import looks for.

use crate::{
    embed,
    problem::{Answer, Problem},
};
use std::fmt::Write as _;
use twinscope_report::{Comparison, Headline, Leftover, Number};

const OPEN: &str = "<script type=\"application/json\" id=\"twinscope-report\">";
const CLOSE: &str = "</script>";

/// The file, from the text of a report.
pub fn report_page(json: &str) -> Answer<String> {
    // Names come from files: nothing in them may end the element.
    let safe = json.replace('<', "\\u003c");
    let template = embed::file("report.html").and_then(|bytes| std::str::from_utf8(bytes).ok());
    if let Some((before, rest)) = template.and_then(|template| template.split_once(OPEN))
        && let Some((_, after)) = rest.split_once(CLOSE)
    {
        return Ok([before, OPEN, &safe, CLOSE, after].concat());
    }
    let report: Comparison = serde_json::from_str(json)
        .map_err(|error| Problem::internal(format!("the report cannot be read: {error}")))?;
    Ok(plain(&report, &safe))
}

/// The report that a file holds.
pub(crate) fn report_in(html: &str) -> Option<String> {
    let (_, rest) = html.split_once(OPEN)?;
    let (json, _) = rest.split_once(CLOSE)?;
    (!json.trim().is_empty()).then(|| json.to_owned())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A table without a script.
fn plain(report: &Comparison, json: &str) -> String {
    let headline = Headline::of(report);
    let number = |value: Option<Number>| match value.map(|number| number.0) {
        None => String::new(),
        Some(x) if x != 0.0 && (x.abs() < 1e-3 || x.abs() >= 1e6) => format!("{x:.3e}"),
        Some(x) => format!("{x:.6}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
    };
    let mut rows = String::new();
    for pair in &report.pairs {
        let totals = pair.totals.as_ref();
        let verdict = pair.verdict.name();
        let origin = pair
            .origin
            .map_or_else(String::new, |origin| format!(" ({})", origin.name()));
        let cause = pair.causes.first().map_or_else(
            || pair.reason.clone().unwrap_or_default(),
            |cause| cause.text.clone(),
        );
        let shape = pair.shape.as_ref().map_or_else(String::new, |shape| {
            twinscope_tensor::Shape::from(shape.clone()).to_string()
        });
        let _ = writeln!(
            rows,
            "<tr class=\"{verdict}\"><td>{}</td><td>{}</td><td>{verdict}{origin}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            pair.order,
            escaped(&pair.name),
            escaped(&shape),
            escaped(&pair.dtypes.join(" / ")),
            number(totals.and_then(|totals| totals.max_abs)),
            number(totals.and_then(|totals| totals.rel_l2)),
            escaped(&cause),
        );
    }
    let first = headline.first_divergence.as_ref().map_or_else(
        || "no divergence".to_owned(),
        |first| format!("first divergence: {}", first.name),
    );
    let left = |title: &str, names: &[Leftover]| match names.is_empty() {
        true => String::new(),
        false => format!(
            "<h2>{title}</h2><p>{}</p>",
            names
                .iter()
                .map(|left| escaped(&left.name))
                .collect::<Vec<_>>()
                .join(", ")
        ),
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>twinscope: {verdict}</title>\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <style>:root{{color-scheme:light dark}}body{{font:14px system-ui;margin:2rem}}table{{border-collapse:collapse}}\
         td,th{{padding:.2rem .6rem;text-align:left;border-bottom:1px solid #8884}}td{{font-variant-numeric:tabular-nums}}\
         tr.diverged td:nth-child(3){{font-weight:700}}</style></head><body>\
         <h1>{verdict}{partial}</h1><p>{} against {}</p><p>{} of {} pairs diverged; {}</p>\
         <table><thead><tr><th>#</th><th>tensor</th><th>verdict</th><th>shape</th><th>dtypes</th><th>max abs</th><th>rel L2</th><th>cause</th></tr></thead>\
         <tbody>\n{rows}</tbody></table>{}{}\n{OPEN}{json}{CLOSE}\n</body></html>\n",
        escaped(&report.candidate),
        escaped(&report.reference),
        headline.counts.diverged,
        headline.pairs,
        escaped(&first),
        left("Only in the reference", &report.only_reference),
        left("Only in the candidate", &report.only_candidate),
        verdict = report.verdict.name(),
        partial = if report.partial { ", partial" } else { "" },
    )
}
