//! Sources to terminal: `twinscope diff`, `ls`, `show`, `stats`; and to the browser: `twinscope serve`.
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 done, 2 not; of `diff` also 1, they differ.

mod commands;
mod failure;
mod hash;
mod interrupt;
mod name;
mod open;
mod output;
mod progress;
mod render;

use clap::Parser;
use failure::{Failure, hint_of};
use output::Output;
use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

/// No answer: nothing could be read, the content is unsafe, or the command makes no sense.
const NOT_DONE: u8 = 2;

const EXAMPLES: &str = "\
Examples:
  twinscope hf_run.pt our_run.pt                 both in the browser, to look around
  twinscope diff hf_run.pt our_run.pt            where they diverge, bug or rounding, and why
  twinscope ls model.safetensors                 what is in it, in execution order
  twinscope ls run.tar.gz --only '0_*' --json    the first layer, for a script
  twinscope show dump.pt '0_query[0, :, 5:9]'    values, NumPy slice syntax
  twinscope stats model.gguf --sort max          one line of numbers for each tensor
  cat x.npy | twinscope stats -                  standard input

A SOURCE is a .pt .pth .bin .ckpt .pkl .pt2 .safetensors .npy .npz .gguf .onnx .h5 .keras or
.msgpack file, a sharded *.index.json, an archive or a folder of these, or `-` for standard
input. Nothing in a file is ever executed.";

/// Finds where two runs of the same neural network part ways, whether it matters, and why.
///
/// Compares sources, lists what they hold, shows values and measures them. Files are read through a memory map, headers first;
/// pickles are never executed.
#[derive(Debug, Parser)]
#[command(name = "twinscope", version, after_help = EXAMPLES, max_term_width = 120)]
struct Cli {
    #[command(flatten)]
    opening: open::Opening,
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let cli = match parsed() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let json = cli.opening.json;
    let mut out = BufWriter::with_capacity(
        1 << 16,
        Output::new(io::stdout().lock(), cli.command.answers_by_exit_code()),
    );
    let code = match cli
        .opening
        .use_threads()
        .and_then(|()| cli.command.run(&cli.opening, &mut out))
    {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => 0,
        Err(error) => {
            report(&error);
            if json {
                // A document that was begun cannot be taken back; one that was not is the error itself.
                let _ = render::json::error(
                    &error,
                    &cli.command.source().display().to_string(),
                    &mut out,
                );
            }
            NOT_DONE
        }
    };
    match out.flush() {
        // Whoever read us has seen enough (`| head`).
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => report(&error.into()),
        _ => {}
    }
    ExitCode::from(if out.get_ref().failed() {
        NOT_DONE
    } else {
        code
    })
}

/// `serve` is what is meant when no command is named: by nothing at all, by its options, or by a file.
fn parsed() -> Result<Cli, clap::Error> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let mut args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let error = match Cli::try_parse_from(&args) {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    // A misspelt command is no file, whatever comes behind it; whoever writes a path or an extension means a file.
    let names_a_file = || match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => {
            std::path::Path::new(word).exists() || word.contains(['/', '.']) || word == "-"
        }
        _ => false,
    };
    let meant = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => true,
        ErrorKind::InvalidSubcommand => names_a_file(),
        ErrorKind::UnknownArgument => args
            .get(1)
            .is_some_and(|arg| arg.to_string_lossy().starts_with('-')),
        _ => false,
    };
    if !meant {
        return Err(error);
    }
    args.insert(args.len().min(1), "serve".into());
    Cli::try_parse_from(&args)
}

/// clap's own words; with `--json` the document is still there.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    if std::env::args_os().any(|arg| arg == "--json") {
        let text = error.render().to_string();
        let fact: Vec<&str> = text
            .trim_start_matches("error: ")
            .lines()
            .map(str::trim)
            .take_while(|line| !line.is_empty())
            .collect();
        let failure = Failure::new(fact.join(" ")).hint("see `twinscope --help`");
        let _ = render::json::error(&failure.into(), "", &mut io::stdout().lock());
    }
    ExitCode::from(NOT_DONE)
}

fn report(error: &anyhow::Error) {
    let mut to = io::stderr().lock();
    // Messages quote names that come from files. A closed stderr is no reason to end otherwise.
    let _ = writeln!(to, "twinscope: {}", render::human::safe(&error.to_string()));
    if let Some(hint) = hint_of(error) {
        let _ = writeln!(to, "hint: {}", render::human::safe(&hint));
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind);
        io.or(json) == Some(io::ErrorKind::BrokenPipe)
    })
}
