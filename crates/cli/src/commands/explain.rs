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
use twinscope_report::{Comparison as Document, Pair};

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
    /// The pair, by its name on either side, or its number in the table of `diff`
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
        let explained = comparison.explain(opening, |report| self.find(report))?;
        if opening.json {
            json::document(out, &explained)?;
        } else {
            explain::text(&explained, out)?;
        }
        Ok(0)
    }

    /// The pair the user means.
    fn find(&self, report: &Document) -> anyhow::Result<usize> {
        // A pair is called as in the reference: where layers are shifted, the candidate calls another pair by that name.
        let called = |is: &dyn Fn(&Pair) -> bool| report.pairs.iter().position(is);
        let named = called(&|pair| pair.name == self.name)
            .or_else(|| called(&|pair| pair.reference.all().contains(&self.name)))
            .or_else(|| called(&|pair| pair.candidate.all().contains(&self.name)));
        // Counted from 1, as in the table and the headline of `diff`.
        let number = || {
            self.name
                .parse::<usize>()
                .ok()?
                .checked_sub(1)
                .filter(|at| *at < report.pairs.len())
        };
        if let Some(at) = named.or_else(number) {
            return Ok(at);
        }
        let lonely = report
            .only_reference
            .iter()
            .chain(&report.only_candidate)
            .any(|left| left.name == self.name);
        if lonely {
            let failure = Failure::new(format!("`{}` has no partner on the other side", self.name));
            return Err(failure
                .hint("pair it with --map or --match, see `twinscope diff --help`")
                .into());
        }
        let near = nearest(
            &self.name,
            report.pairs.iter().map(|pair| pair.name.as_str()),
        );
        let failure = Failure::new(format!("there is no pair `{}`", self.name));
        Err(match near.as_slice() {
            [] => failure
                .hint("`twinscope diff REFERENCE CANDIDATE --all` lists the pairs")
                .into(),
            near => failure
                .hint(format!("did you mean {}?", near.join(", ")))
                .into(),
        })
    }

    pub(crate) fn source(&self) -> &Path {
        &self.reference
    }
}
