//! `twinscope explain REFERENCE CANDIDATE NAME` — one pair in depth: every hypothesis tried, what each explains.

use super::diff::{Chosen, Comparison, Given};
use crate::{
    failure::Failure,
    interrupt,
    name::nearest,
    open::Opening,
    render::{explain, json},
};
use std::{
    io::Write,
    path::{Path, PathBuf},
};
use twinscope_compare::Report;

/// Say why one pair differs: every hypothesis tried, how much each explains
///
/// Also says why the others were ruled out.
/// The other recorded tensors of both sides are looked at too: a cause may be a tensor that is missing, swapped or taken from elsewhere.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  twinscope explain hf_run.pt our_run.pt 1_query_final
  twinscope explain a.safetensors b.safetensors model.layers.3.mlp --json")]
pub(crate) struct Explain {
    /// The source you trust
    pub(crate) reference: PathBuf,
    /// The source in question
    candidate: PathBuf,
    /// The pair, by its name on either side, or its number in `diff`
    name: String,
    #[command(flatten)]
    chosen: Chosen,
    /// A repeat or higher-precision run of the reference: its differences are what rounding is
    #[arg(long, value_name = "RUN")]
    noise: Option<PathBuf>,
}

impl Explain {
    pub(crate) fn run(&self, opening: &Opening, out: &mut dyn Write) -> anyhow::Result<u8> {
        let settings = self.chosen.settings(opening)?;
        interrupt::listen();
        let comparison = Comparison {
            reference: Given::Path(self.reference.clone()),
            candidate: Some(Given::Path(self.candidate.clone())),
            noise: self.noise.clone(),
            settings,
            exact: false,
        };
        let (report, at, explained) = comparison.explain(opening, |report| self.find(report))?;
        if opening.json {
            json::document(out, &explain::Document::new(&report, at, &explained))?;
        } else {
            explain::text(&report, at, &explained, out)?;
        }
        Ok(0)
    }

    /// The pair the user means.
    fn find(&self, report: &Report) -> anyhow::Result<usize> {
        let called = |names: &[String]| names.contains(&self.name);
        let named = report.pairs.iter().position(|pair| pair.name == self.name || called(&pair.reference) || called(&pair.candidate));
        if let Some(at) = named.or_else(|| self.name.parse().ok().filter(|at| *at < report.pairs.len())) {
            return Ok(at);
        }
        let lonely = report.only_reference.iter().chain(&report.only_candidate).any(|left| left.name == self.name);
        if lonely {
            let failure = Failure::new(format!("`{}` has no partner on the other side", self.name));
            return Err(failure.hint("pair it with --map or --match, see `twinscope diff --help`").into());
        }
        let near = nearest(&self.name, report.pairs.iter().map(|pair| pair.name.as_str()));
        let failure = Failure::new(format!("there is no pair `{}`", self.name));
        Err(match near.as_slice() {
            [] => failure.hint("`twinscope diff REFERENCE CANDIDATE --all` lists the pairs").into(),
            near => failure.hint(format!("did you mean {}?", near.join(", "))).into(),
        })
    }

    pub(crate) fn source(&self) -> &Path {
        &self.reference
    }
}
