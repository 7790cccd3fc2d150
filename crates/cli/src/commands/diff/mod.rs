//! `twinscope diff REFERENCE CANDIDATE`, `diff SOURCE`, `diff --batch FILE` — where two runs part ways, and whether it matters.

mod batch;
mod chosen;
mod comparison;
mod exit;

use crate::{
    NOT_DONE,
    failure::Failure,
    interrupt,
    open::Opening,
    render::{diff as report, json},
};
pub(super) use chosen::Chosen;
use comparison::Compared;
pub(super) use comparison::{Comparison, Given};
use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};
use twinscope_compare::{Settings, mapfile};
use twinscope_server::report_csv;
use twinscope_tensor::TensorSource;

/// A screen of pairs.
const ROWS: usize = 20;

const SHOWN: &str = "What is shown and written";

/// Say whether two sources agree, where they stop agreeing, and why
///
/// Pairs the tensors of both sides, lines them up, measures them and judges: identical, within rounding, or diverged; the first
/// divergence by itself is where to look. With one source, every tensor is compared with every other.
///
/// Exits 0 when everything agrees and has a partner, 1 when something diverged, cannot be lined up or has no partner, 2
/// when there is no answer.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  twinscope diff hf_run.pt our_run.pt                     where they diverge, bug or rounding
  twinscope diff a.safetensors b.gguf --all               every pair
  twinscope diff a.pt b.pt --rtol 1e-3 --atol 1e-5        NumPy's rule instead of the noise model
  twinscope diff a.pt b.pt --noise a_again.pt             rounding is what a repeated run shows
  twinscope diff a b --pattern 'h\\.(?<layer>\\d+)\\.(?<op>\\w+)=>layers/(?<layer>\\d+)/(?<op>\\w+)'
  twinscope diff a b --save-map map.csv                   what was paired, to edit for --map
  twinscope diff a b --layout '*_query: squeeze(0) permute(1,0,2)'
  twinscope diff dump.pt                                  every tensor against every other
  twinscope diff --batch runs.jsonl --json                many comparisons, one document")]
pub(crate) struct Diff {
    /// The source you trust
    #[arg(required_unless_present = "batch")]
    reference: Option<PathBuf>,
    /// The source in question; without it, every tensor of the first is compared with every other
    candidate: Option<PathBuf>,
    /// One comparison a line: {"reference": "...", "candidate": "...", "name": "...", "settings": {...}}
    #[arg(long, value_name = "FILE", conflicts_with_all = ["reference", "candidate", "save_map", "csv", "html"])]
    batch: Option<PathBuf>,
    #[command(flatten)]
    chosen: Chosen,
    /// A repeat or higher-precision run of the reference: its differences are what rounding is
    #[arg(long, value_name = "RUN")]
    noise: Option<PathBuf>,
    /// A tensor without a partner is no reason to fail
    #[arg(long, help_heading = SHOWN)]
    allow_missing: bool,
    /// Of one source, measure every pair, however many there are
    #[arg(long)]
    exact: bool,
    /// Write the pairs that were found, as JSON or CSV by the extension, to be edited and given back with --map
    #[arg(long, value_name = "FILE", help_heading = SHOWN)]
    save_map: Option<PathBuf>,
    /// Write one row for each pair; `-` prints it instead of the report
    #[arg(long, value_name = "FILE", help_heading = SHOWN)]
    csv: Option<PathBuf>,
    /// Write the report as one HTML file that opens anywhere, without this program
    #[arg(long, value_name = "FILE", help_heading = SHOWN)]
    html: Option<PathBuf>,
    /// How many rows of pairs to show
    #[arg(long, value_name = "N", default_value_t = ROWS, conflicts_with = "all", help_heading = SHOWN)]
    limit: usize,
    /// Show every pair, not only those around the first divergence
    #[arg(long, help_heading = SHOWN)]
    all: bool,
}

impl Diff {
    pub(crate) fn source(&self) -> &Path {
        self.reference
            .as_deref()
            .or(self.batch.as_deref())
            .unwrap_or(Path::new(""))
    }

    pub(crate) fn run(&self, opening: &Opening, out: &mut dyn Write) -> anyhow::Result<u8> {
        if opening.json && self.csv.as_deref() == Some(Path::new("-")) {
            return Err(Failure::new("--json and --csv - both want standard output")
                .hint("give --csv a file")
                .into());
        }
        let settings = self.chosen.settings(opening)?;
        for path in [&self.save_map, &self.csv, &self.html]
            .into_iter()
            .flatten()
            .filter(|path| *path != Path::new("-"))
        {
            can_be_written(path)?;
        }
        interrupt::listen();
        match (&self.batch, &self.reference) {
            (Some(file), _) => self.run_batch(file, &settings, opening, out),
            (None, Some(reference)) => self.run_one(reference, settings, opening, out),
            // clap asks for one of them.
            (None, None) => Err(Failure::new("nothing to compare").into()),
        }
    }

    fn run_one(
        &self,
        reference: &Path,
        settings: Settings,
        opening: &Opening,
        out: &mut dyn Write,
    ) -> anyhow::Result<u8> {
        let compared = self
            .comparison(reference, self.candidate.as_deref(), settings)
            .run(opening)?;
        // What was measured for hours is shown also when the disk is full by then.
        let saved = self.save_files(&compared);
        match self.csv.as_deref() {
            Some(path) if path == Path::new("-") => {
                out.write_all(report_csv(&compared.report).as_bytes())?;
            }
            _ => compared.write(&self.rows(compared.alone), opening.json, out)?,
        }
        compared.warn(out)?;
        if let Err(error) = saved {
            crate::report(&error);
            return Ok(NOT_DONE);
        }
        Ok(exit::code(&compared.report, self.allow_missing))
    }

    fn save_files(&self, compared: &Compared) -> anyhow::Result<()> {
        if let Some(path) = &self.save_map {
            let format = mapfile::MapFormat::of_extension(
                path.extension().and_then(|extension| extension.to_str()),
            );
            save(path, &mapfile::write(&compared.map, format))?;
        }
        if let Some(path) = &self.html {
            let page = twinscope_server::report_page(&serde_json::to_string(&compared.report)?);
            save(path, &page.map_err(|problem| Failure::new(problem.detail))?)?;
        }
        if let Some(path) = self.csv.as_deref().filter(|path| *path != Path::new("-")) {
            save(path, &report_csv(&compared.report))?;
        }
        Ok(())
    }

    fn comparison(
        &self,
        reference: &Path,
        candidate: Option<&Path>,
        settings: Settings,
    ) -> Comparison {
        Comparison {
            reference: Given::Path(reference.to_owned()),
            candidate: candidate.map(|path| Given::Path(path.to_owned())),
            noise: self.noise.clone(),
            settings,
            exact: self.exact,
        }
    }

    fn rows(&self, alone: bool) -> report::Rows {
        report::Rows {
            limit: if self.all { usize::MAX } else { self.limit },
            all: self.all,
            alone,
        }
    }
}

/// Compares two sources in memory and shows what `diff` would.
pub(super) fn held(
    [reference, candidate]: [Arc<dyn TensorSource>; 2],
    all: bool,
    opening: &Opening,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    interrupt::listen();
    let settings = Settings {
        only: opening.only().to_vec(),
        ..Settings::default()
    };
    let (reference, candidate) = (Given::Held(reference), Some(Given::Held(candidate)));
    let compared = Comparison {
        reference,
        candidate,
        noise: None,
        settings,
        exact: false,
    }
    .run(opening)?;
    let limit = if all { usize::MAX } else { ROWS };
    compared.write(
        &report::Rows {
            limit,
            all,
            alone: false,
        },
        opening.json,
        out,
    )?;
    compared.warn(out)
}

impl Compared {
    fn write(&self, rows: &report::Rows, as_json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
        if as_json {
            json::document(out, &self.report)
        } else {
            report::text(&self.report, rows, out)
        }
    }

    /// Says what else there is to say, after the report is out.
    fn warn(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        out.flush()?;
        report::warnings(&self.report);
        self.notes.iter().for_each(|note| report::note(note));
        Ok(())
    }
}

/// Whether there is a folder to write this file into: a slip is told before hours of work, not after. What is there is left as it is.
fn can_be_written(path: &Path) -> anyhow::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let why = if path.is_dir() {
        "it is a folder".to_owned()
    } else if !folder.is_dir() {
        format!("there is no folder `{}`", folder.display())
    } else {
        return Ok(());
    };
    Err(Failure::new(format!("cannot write `{}`: {why}", path.display())).into())
}

/// Writes a file the user asked for.
fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text)
        .map_err(|error| Failure::new(format!("cannot write `{}`: {error}", path.display())).into())
}

/// Reads a text file the user named.
fn text_of(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read `{}`: {error}", path.display())).into())
}
