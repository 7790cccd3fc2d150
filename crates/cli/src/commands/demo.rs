//! `twinscope demo` — two runs of a small transformer, one with a known fault: what `diff` makes of them, or the runs themselves.

use super::{diff, serve::Listening};
use crate::{
    failure::Failure,
    name::nearest,
    open::Opening,
    render::{
        human, json,
        table::{self, Column},
    },
};
use serde::Serialize;
use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};
use twinscope_demo::{FAULTS, Fault, Model, Outcome, Record, Spec, SpecError, run};
use twinscope_server::random_id;
use twinscope_tensor::{DType, TensorSource};

const SIZES: &str = "Sizes of the model";

/// What is planted when nobody says.
const SHOWN: &str = "rope_theta";

/// Compare two runs of a small built-in transformer, one of them with a known fault
///
/// Needs no file: random weights, fixed by --seed, run in milliseconds. Opens the two runs in the web app; with --print or --json says what
/// `diff` says of them instead, with --out writes them. Exits 0 when that was done, whatever the runs came to.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  twinscope demo                                    a wrong rope theta, found and named, in the browser
  twinscope demo --print                            the same in the terminal
  twinscope demo --list                             what can be broken, and where it shows
  twinscope demo --fault norm_eps --dtype bf16      a gentle fault under coarse rounding
  twinscope demo --fault kv_swapped@0 --fault clipped@2     two at once, each in its layer
  twinscope demo --fault tp_order --model gpt2      no fault: another order of summation
  twinscope demo --fault weight_int4 --record full --out runs    written, with weights, for `diff` and `ls`")]
pub(crate) struct Demo {
    /// What to break, `--list` has the names; `NAME@LAYER` says where. Repeat for more [default: rope_theta]
    #[arg(long, value_name = "NAME[@LAYER]")]
    fault: Vec<String>,
    /// The layer to break where no fault names one [default: the middle one]
    #[arg(long, value_name = "N")]
    layer: Option<usize>,
    /// List what can be broken
    #[arg(long, conflicts_with_all = ["fault", "out", "print"])]
    list: bool,
    /// Print what `diff` says instead of opening the web app
    #[arg(long, conflicts_with = "out")]
    print: bool,
    /// Write the two runs as DIR/reference and DIR/candidate instead of comparing them
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Which transformer: llama (RMSNorm, rope, grouped queries, SwiGLU), gpt2 (LayerNorm, learned positions, fused q k v, gelu), moe (a llama with experts)
    #[arg(long, value_name = "MODEL", default_value = "llama")]
    model: Model,
    /// What weights and results are rounded to: f64, f32, bf16 or f16
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = dtype)]
    dtype: DType,
    /// The same for the candidate alone [default: as --dtype]
    #[arg(long, value_name = "DTYPE", value_parser = dtype)]
    candidate_dtype: Option<DType>,
    /// The candidate sums in the order of so many tensor-parallel ranks
    #[arg(long, value_name = "N", default_value_t = 1)]
    tp: usize,
    /// Fixes the weights and the input
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// `stages` records what every layer computes; `full` also the weights, and what each tensor was computed from
    #[arg(long, value_name = "LEVEL", default_value = "stages")]
    record: Record,
    /// Show every pair, not only those around the first divergence
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    listening: Listening,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = SIZES)]
struct Sizes {
    /// Layers
    #[arg(long, value_name = "N", default_value_t = Spec::default().layers)]
    layers: usize,
    /// Prompts run at once
    #[arg(long, value_name = "N", default_value_t = Spec::default().batch)]
    batch: usize,
    /// Tokens of a prompt
    #[arg(long, value_name = "N", default_value_t = Spec::default().seq)]
    seq: usize,
    /// Width of the residual stream
    #[arg(long, value_name = "N", default_value_t = Spec::default().hidden)]
    hidden: usize,
    /// Query heads
    #[arg(long, value_name = "N", default_value_t = Spec::default().heads)]
    heads: usize,
    /// Key and value heads of a llama
    #[arg(long, value_name = "N", default_value_t = Spec::default().kv_heads)]
    kv_heads: usize,
    /// Width of a head
    #[arg(long, value_name = "N", default_value_t = Spec::default().head_dim)]
    head_dim: usize,
    /// Width of the feed-forward
    #[arg(long, value_name = "N", default_value_t = Spec::default().inner)]
    inner: usize,
    /// Tokens there are
    #[arg(long, value_name = "N", default_value_t = Spec::default().vocab)]
    vocab: usize,
}

/// One row of `--list`.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    about: &'static str,
    outcome: &'static str,
    /// Where it shows first; null for what shows nowhere.
    first: Option<String>,
    /// Right causes, the best first; empty when it cannot be told from what is recorded.
    kinds: &'static [&'static str],
    models: Vec<&'static str>,
}

/// What was planted, as written down beside the runs.
#[derive(Debug, Serialize)]
struct Written {
    reference: String,
    candidate: String,
    faults: Vec<Row>,
}

impl Demo {
    pub(crate) fn run(&self, opening: &Opening, out: &mut dyn Write) -> anyhow::Result<u8> {
        let spec = self.spec();
        if self.list {
            self.write_list(&spec, opening.json, out)?;
            return Ok(0);
        }
        let candidate = self.planted(Spec {
            dtype: self.candidate_dtype.unwrap_or(spec.dtype),
            ..spec
        })?;
        let reference = Spec {
            dtype: self.dtype,
            ..candidate.reference()
        };
        let runs = [
            run(&reference).map_err(refused)?.named("reference"),
            run(&candidate).map_err(refused)?.named("candidate"),
        ];
        if let Some(folder) = &self.out {
            let [reference, candidate_run] = runs;
            let paths = [folder.join("reference"), folder.join("candidate")];
            for (run, path) in [&reference, &candidate_run].into_iter().zip(&paths) {
                run.write(path).map_err(|error| {
                    Failure::new(error.to_string()).hint("choose another folder for --out")
                })?;
            }
            self.written(&candidate, &paths, opening.json, out)?;
            return Ok(0);
        }
        if !self.print && !opening.json {
            return self.in_the_page(&candidate, &runs, opening, out);
        }
        if !opening.json {
            for line in said(&candidate) {
                writeln!(out, "{line}")?;
            }
            writeln!(out)?;
        }
        diff::held(
            runs.map(|run| Arc::new(run) as Arc<dyn TensorSource>),
            self.all,
            opening,
            out,
        )?;
        Ok(0)
    }

    /// Writes the runs beside the sessions, where they are found again after a restart, and opens the page on them.
    fn in_the_page(
        &self,
        spec: &Spec,
        runs: &[twinscope_demo::Run; 2],
        opening: &Opening,
        out: &mut dyn Write,
    ) -> anyhow::Result<u8> {
        let names: Vec<String> = spec
            .faults
            .iter()
            .map(|planted| format!("{}@{}", planted.fault.name, planted.layer))
            .collect();
        let folder = self.listening.state()?.join("demo").join(format!(
            "{}-{}",
            names.join("+"),
            random_id(6)?
        ));
        let paths = ["reference", "candidate"].map(|side| folder.join(side));
        for (run, path) in runs.iter().zip(&paths) {
            run.write(path).map_err(|error| {
                Failure::new(error.to_string()).hint("say where with --state DIR")
            })?;
        }
        for line in said(spec) {
            // stdout has the address alone.
            eprintln!("{line}");
        }
        self.listening
            .serve(Some(&paths[0]), Some(&paths[1]), opening, out)
    }

    fn spec(&self) -> Spec {
        let Sizes {
            layers,
            batch,
            seq,
            hidden,
            heads,
            kv_heads,
            head_dim,
            inner,
            vocab,
        } = self.sizes;
        let (model, dtype, tp, seed, record) =
            (self.model, self.dtype, self.tp, self.seed, self.record);
        Spec {
            model,
            layers,
            batch,
            seq,
            hidden,
            heads,
            kv_heads,
            head_dim,
            inner,
            vocab,
            dtype,
            tp,
            seed,
            record,
            ..Spec::default()
        }
    }

    fn planted(&self, mut spec: Spec) -> anyhow::Result<Spec> {
        let shown = [SHOWN.to_owned()];
        let faults = match (self.fault.as_slice(), self.model) {
            // What is shown by default must exist in every model.
            ([], Model::Gpt2) => &["attn_scale_missing".to_owned()][..],
            ([], _) => &shown,
            (named, _) => named,
        };
        for text in faults {
            let (fault, layer) = parse(text)?;
            spec = spec
                .with_fault(fault, layer.or(self.layer))
                .map_err(refused)?;
        }
        Ok(spec)
    }

    fn write_list(&self, spec: &Spec, as_json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
        // Everything that any model can have, wherever it is; `spec` says what it is called there.
        let spec = &Spec {
            record: Record::Full,
            ..spec.clone()
        };
        let rows: Vec<Row> = FAULTS
            .iter()
            .map(|fault| {
                row(
                    fault,
                    spec,
                    self.record,
                    self.layer.unwrap_or(spec.layers / 2),
                )
            })
            .collect();
        if as_json {
            return json::document(out, &serde_json::json!({ "faults": rows }));
        }
        let columns = [
            Column::left("fault"),
            Column::left("outcome"),
            Column::left("first seen at"),
            Column::left("causes"),
            Column::left("models"),
            Column::left("what is wrong"),
        ];
        table::write(
            out,
            &columns,
            rows.len(),
            human::stdout_width(),
            "what is wrong",
            &mut |at, cells| {
                let row = &rows[at];
                cells.cell(row.name);
                cells.cell(row.outcome);
                cells.cell(row.first.as_deref().unwrap_or("-"));
                cells.cell(if row.kinds.is_empty() {
                    "-".to_owned()
                } else {
                    row.kinds.join(", ")
                });
                cells.cell(row.models.join(" "));
                cells.cell(row.about);
            },
        )?;
        writeln!(
            out,
            "\n{} to plant with `twinscope demo --fault NAME`",
            human::count(rows.len(), "fault")
        )?;
        Ok(())
    }

    fn written(
        &self,
        spec: &Spec,
        [reference, candidate]: &[PathBuf; 2],
        as_json: bool,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let text = |path: &Path| path.display().to_string();
        let (reference, candidate) = (text(reference), text(candidate));
        if as_json {
            let faults = spec
                .faults
                .iter()
                .map(|planted| row(planted.fault, spec, spec.record, planted.layer))
                .collect();
            return json::document(
                out,
                &Written {
                    reference,
                    candidate,
                    faults,
                },
            );
        }
        for line in said(spec) {
            writeln!(out, "{line}")?;
        }
        writeln!(
            out,
            "written; compare them with\n  twinscope diff {} {}",
            human::safe(&reference),
            human::safe(&candidate)
        )?;
        Ok(())
    }
}

/// One line for each fault: what it is and where it shows.
fn said(spec: &Spec) -> Vec<String> {
    let line = |planted: &twinscope_demo::Planted| {
        let fault = planted.fault;
        let (name, about) = (fault.name, fault.about);
        match fault.outcome {
            Outcome::Benign => format!("no fault ({name}): {about}"),
            _ => format!(
                "planted {name}, to be seen first at {}: {about}",
                fault.first(spec, planted.layer)
            ),
        }
    };
    spec.faults.iter().map(line).collect()
}

/// One row, for a model and a record that have the fault, those asked for if they do.
fn row(fault: &'static Fault, spec: &Spec, record: Record, layer: usize) -> Row {
    let models = fault.models(spec, layer);
    let model = if models.contains(&spec.model) {
        spec.model
    } else {
        models.first().copied().unwrap_or(spec.model)
    };
    let asked = Spec {
        model,
        record,
        ..spec.clone()
    };
    let spec = &if fault.check(&asked, layer).is_ok() {
        asked
    } else {
        Spec {
            record: Record::Full,
            ..asked
        }
    };
    Row {
        name: fault.name,
        about: fault.about,
        outcome: fault.outcome.name(),
        first: (fault.outcome != Outcome::Benign).then(|| fault.first(spec, layer)),
        kinds: fault.kinds(spec),
        models: models.into_iter().map(Model::name).collect(),
    }
}

/// `NAME` or `NAME@LAYER`.
fn parse(text: &str) -> anyhow::Result<(&'static Fault, Option<usize>)> {
    let (name, layer) = match text.split_once('@') {
        None => (text, None),
        Some((name, layer)) => {
            let number = layer.parse().map_err(|_| {
                Failure::new(format!("--fault `{text}`: `{layer}` is no layer"))
                    .hint("write NAME@1")
            })?;
            (name, Some(number))
        }
    };
    let Some(fault) = Fault::named(name) else {
        let close = nearest(name, FAULTS.iter().map(|fault| fault.name));
        let meant = if close.is_empty() {
            String::new()
        } else {
            format!("did you mean {}? ", or(&close))
        };
        return Err(Failure::new(format!("there is no fault `{name}`"))
            .hint(format!("{meant}`twinscope demo --list` has them all"))
            .into());
    };
    Ok((fault, layer))
}

/// "a", "a or b", "a, b or c".
fn or(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.join(""),
    }
}

fn refused(error: SpecError) -> Failure {
    Failure::new(error.to_string())
}

fn dtype(text: &str) -> Result<DType, String> {
    let known = [DType::F64, DType::F32, DType::Bf16, DType::F16];
    known
        .into_iter()
        .find(|dtype| dtype.to_string() == text)
        .ok_or_else(|| "the demo computes in f64, f32, bf16 and f16".to_owned())
}
